"""Replies that begin alike, read once: the replies to one prompt as a tree of tokens, laid out in one row.

The replies of a group share many of their first tokens, the more the surer the policy gets (benchmarks/README.md). A tree
keeps each distinct beginning once, depth first: what follows a token stands right behind it, so one number a token, the
place `until` which it is seen, tells who follows whom. A single reply is the tree whose tokens are seen to its end.
A state predicts: it is a prompt's end or a token that was read. The last token of a reply predicts nothing and is not read.
"""
from dataclasses import dataclass

import torch

SLOWER = 3      # attention against products on a CPU, work for work; 2 to 6 make no difference that can be measured


@dataclass
class Tree:
    """R replies of up to T tokens in B rows of up to N; E distinct predictions.

    numbers (R,): the replies, row by row; first (B,): one of each row's, whose prompt it follows; tokens, until (B, N) int64,
    valid (B, N) bool; state, token (E,): token is predicted by state, counted over the B prompts' ends and then the valid
    tokens, row by row; edge (R, T): which prediction each token of a reply is, E where a reply has none."""
    numbers: torch.Tensor
    first: torch.Tensor
    tokens: torch.Tensor
    until: torch.Tensor
    valid: torch.Tensor
    state: torch.Tensor
    token: torch.Tensor
    edge: torch.Tensor

    def states(self):
        """How many states predict: of so many the logits are computed."""
        return len(self.first) + int(self.valid.sum())


def bundles(ids, where, numbers, begin, cfg):
    """[(reply numbers, states)]: which of the replies `numbers` to lay side by side in one row, and how many states that row has.

    ids: all replies, lists of ids; where: the prompt of each; begin: tokens of the longest. Sorted, neighbours share most. A
    reply joins the row before it where the tokens it saves are worth the attention it adds: all tokens of a row are weighed
    against each other, though few follow each other."""
    out, worth, cost = [], pairs(cfg), lambda n: n * (begin + n)
    for i in sorted(numbers, key=lambda i: (where[i], ids[i])):
        n = max(0, len(ids[i]) - 1)                            # tokens to read
        if out and where[out[-1][0][-1]] == where[i]:
            row, size = out[-1][0], out[-1][1] - 1
            last = ids[row[-1]]
            alike = min(max(0, len(last) - 1), n)
            alike = next((t for t in range(alike) if last[t] != ids[i][t]), alike)
            if cost(size + n - alike) - cost(size) - cost(n) <= worth * alike:
                out[-1] = row + [i], size + n - alike + 1
                continue
        out.append(([i], n + 1))
    return out


def pairs(cfg):
    """How many pairs of query and key cost as much as one token's matrix products."""
    q, kv = cfg.num_attention_heads * cfg.head_dim, cfg.num_key_value_heads * cfg.head_dim
    block = cfg.hidden_size * (2 * q + 2 * kv + 3 * cfg.intermediate_size)
    return (block + cfg.hidden_size * cfg.vocab_size / cfg.num_hidden_layers) / (2 * q * SLOWER)


def grow(ids, rows, device="cpu"):
    """The Tree of these rows: lists of numbers of replies to one prompt."""
    edges, read, edge, starts = {}, {}, {}, []                 # edges: (state, token) -> number; read: the same -> next state
    for b, row in enumerate(rows):
        starts.append(len(rows) + len(read))
        for i in sorted(row, key=ids.__getitem__):             # so each token's followers are read right behind it
            state, edge[i] = b, []
            for t, token in enumerate(ids[i], 1):
                edge[i].append(edges.setdefault((state, token), len(edges)))
                if t < len(ids[i]):
                    state = read.setdefault((state, token), len(rows) + len(read))
    end = list(range(1, len(rows) + len(read) + 1))            # behind a state's last follower
    for (before, _), state in reversed(read.items()):
        end[before] = max(end[before], end[state])
    sizes = torch.tensor([b - a for a, b in zip(starts, starts[1:] + [len(end)])])
    valid = torch.arange(int(sizes.max())) < sizes[:, None]
    tokens, until = torch.zeros(valid.shape, dtype=torch.long), torch.zeros(valid.shape, dtype=torch.long)
    tokens[valid] = torch.tensor([token for _, token in read], dtype=torch.long)
    until[valid] = torch.tensor(end[len(rows):], dtype=torch.long) - torch.tensor(starts).repeat_interleave(sizes)
    T = max(map(len, edge.values()))
    edge = torch.tensor([edge[i] + [len(edges)] * (T - len(edge[i])) for row in rows for i in row], dtype=torch.long)
    state, token = torch.tensor(list(edges), dtype=torch.long).view(-1, 2).T
    numbers = torch.tensor([i for row in rows for i in row])
    first = torch.tensor([row[0] for row in rows])
    return Tree(*(part.to(device) for part in (numbers, first, tokens, until, valid, state, token, edge)))
