"""The mathematics of GRPO on tensors: advantages, log-probabilities, the clipped loss with its KL term. Knows no model.

Shapes: P prompts, G replies each, B = P*G rows, T reply tokens, V vocabulary. `mask` is 1 on sampled reply tokens, the end
token included. Sources: Shao et al. 2024 (GRPO, arXiv:2402.03300), Schulman et al. 2017 (the clip, arXiv:1707.06347),
Schulman 2020 (k3), Liu et al. 2025 (Dr. GRPO, arXiv:2503.20783).
"""
import torch

from grpo_lib.config import AGGREGATIONS, shown

HUGE = 80.0     # nats: exp(89) is inf in float32 and inf * 0 nan, so beyond this a ratio stands still, without gradient


def group_advantages(r, std=True, eps=1e-4):
    """How far each reply stands above its group: (r - mean) / (population std + eps), or r - mean without std.

    r: (P, G), one prompt a row. -> (P, G), no graph. A group that agrees gets exactly 0. ValueError for another shape, or
    for a reward that is not finite, with its place. Built in notebook 04."""
    r = torch.as_tensor(r, dtype=torch.float64 if not torch.is_tensor(r) else None).detach()
    r = r if r.is_floating_point() else r.float()
    if r.dim() != 2 or r.numel() == 0:
        raise ValueError(f"rewards must have the shape (prompts, G), one of each at least, not {tuple(r.shape)}")
    if not torch.isfinite(r).all():
        row, col = (~torch.isfinite(r)).nonzero()[0].tolist()
        raise ValueError(f"reward of prompt {row}, reply {col} is {r[row, col].item()}: a reward must be finite")
    agree = (r == r[:, :1]).all(1, keepdim=True)              # rounding of the mean must not invent a signal
    centred = (r - r.mean(1, keepdim=True)).masked_fill(agree, 0.0)
    return centred / (r.std(1, keepdim=True, correction=0) + eps) if std else centred


def token_logprobs(logits, tokens, temperature=1.0):
    """log softmax(logits / temperature) at tokens. logits (B, T, V), where logits[:, t] predicts tokens[:, t] (B, T).

    -> (B, T) float32, in nats; the softmax is taken in float32 whatever comes in. Built in notebook 04."""
    flat = logits.flatten(0, -2)
    return picked(flat, torch.arange(len(flat), device=flat.device), tokens.flatten(), temperature).view(tokens.shape)


def picked(logits, row, token, temperature=1.0):
    """`token_logprobs` of E tokens, of which several may be predicted by one row: logits (M, V), row and token (E,). -> (E,)

    IndexError for a token that is none."""
    if token.device.type == "cpu" and len(token) and not 0 <= int(token.min()) <= int(token.max()) < logits.shape[-1]:
        raise IndexError(f"tokens must lie between 0 and {logits.shape[-1] - 1}, not {int(token.min())} to {int(token.max())}")
    logits = logits.float() if temperature == 1 else logits.float() / temperature
    return Picked.apply(logits, row, token)


class Picked(torch.autograd.Function):
    """log softmax(logits)[row, token] in few passes over the logits, the largest tensor of a step, forward and backward."""

    @staticmethod
    def forward(ctx, logits, row, token):
        """(E,); the largest logit and its probability give the logarithm of the sum, so that none is lost to underflow."""
        p = torch.softmax(logits, -1)
        whole = logits.amax(-1) - p.amax(-1).log()
        ctx.save_for_backward(p, row, token)
        return logits[row, token] - whole[row]

    @staticmethod
    def backward(ctx, g):
        """Gradient by the logits: what a token gets, all tokens of its row pay for by their probability."""
        p, row, token = ctx.saved_tensors
        paid = torch.zeros_like(p[:, 0]).index_add_(0, row, g)
        return (p * -paid[:, None]).index_put_((row, token), g, accumulate=True), None, None


def grpo_loss(logp, old, ref, adv, mask, eps=0.2, beta=0.04, agg="seq-mean", max_tokens=128, norm=None):
    """-min(ratio * A, clip(ratio) * A) + beta * k3 on each token, added up. -> loss, kl (B, T), clipped (B, T).

    logp (B, T) carries the gradient; old: when the batch was sampled; ref: the frozen start (None where beta is 0); adv (B,).
    agg: "seq-mean" each reply over its own length, then over replies; "token-mean" over all tokens; "constant" each reply's
    sum over max_tokens, then over replies. norm: the whole step's rows (token-mean: tokens) when this call sees only a part.
    kl: k3 in nats, its mean over the policy's samples is KL(policy || ref). clipped: ratio outside 1 +- eps, in either
    direction (`binding` counts where the clip changes the gradient). What stands where mask is 0 does not matter, nan
    included. ValueError for a bad agg, eps, beta or max_tokens. Built in notebook 04."""
    if agg not in AGGREGATIONS:
        raise ValueError(f"agg must be one of {', '.join(AGGREGATIONS)}, not {shown(agg)}")
    if not (eps >= 0 and beta >= 0 and max_tokens > 0):
        raise ValueError(f"eps ({shown(eps)}) and beta ({shown(beta)}) must be at least 0 and max_tokens "
                         f"({shown(max_tokens)}) above 0")
    if beta > 0 and ref is None:
        raise ValueError(f"beta is {beta} but ref is None: give the reference's log-probabilities, or beta=0")
    live = mask.bool()
    on = lambda x: torch.where(live, x, torch.zeros_like(x))
    ratio = torch.exp((on(logp) - on(old)).clamp(max=HUGE))
    a = adv.to(ratio)[:, None]
    per_token = -torch.minimum(ratio * a, ratio.clamp(1 - eps, 1 + eps) * a)
    kl = torch.zeros_like(ratio)
    if beta > 0:
        gap = (on(ref) - on(logp)).clamp(max=HUGE)
        kl = torch.exp(gap) - gap - 1
        per_token = per_token + beta * kl
    per_token = on(per_token)
    clipped = ((ratio.detach() - 1).abs() > eps) & live
    return _add_up(per_token, live, agg, max_tokens, norm), on(kl.detach()), clipped


def _add_up(per_token, live, agg, max_tokens, norm):
    rows, lengths = per_token.shape[0], live.sum(1)
    if agg == "token-mean":
        return per_token.sum() / max(1, int(lengths.sum()) if norm is None else norm)
    sums = per_token.sum(1) / (lengths.clamp(min=1) if agg == "seq-mean" else max_tokens)
    return sums.sum() / (rows if norm is None else norm)


def binding(logp, old, adv, mask, eps=0.2):
    """(B, T) bool: tokens whose gradient the clip removes: ratio above 1 + eps with A > 0, or below 1 - eps with A < 0."""
    ratio, a = torch.exp(logp.detach() - old), adv[:, None]
    return (((ratio > 1 + eps) & (a > 0)) | ((ratio < 1 - eps) & (a < 0))) & mask.bool()
