"""The cores and the memory of this process: tasks spread over threads, gradients added up over them, freed memory kept.

On a CPU a small model's matrix products and attention gain little from several threads inside one operation, so whole
pieces of a batch run side by side instead, each on its share of the cores (benchmarks/README.md has the figures). What
comes out depends on neither order nor timing: results are taken, and gradients summed, in a fixed order.
"""
import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor

import torch


def lanes(device):
    """How many pieces run side by side on a device: one a core on a CPU, else one."""
    return torch.get_num_threads() if torch.device(device).type == "cpu" else 1


def spread(work, parts, device="cpu", most=None):
    """Yield work(part) for each part, in order; on a CPU one part a core (`most` in all) runs at once. An error stops the rest.

    Autograd's switches belong to a thread, so `work` sets its own inference mode."""
    cores, count = torch.get_num_threads(), min(lanes(device), len(parts), most or len(parts))
    if count < 2:
        yield from map(work, parts)
        return
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(cores // count,)) as pool:
            try:
                yield from pool.map(work, parts)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(cores)                           # the threads changed the default of those to come


def gradients(model, loss_of, parts, leaves=()):
    """Set .grad of the model's parameters, and of `leaves`, to that of the sum of loss_of(part)[0] over parts. -> the second
    values, in order."""
    params, device = [*(p for p in model.parameters() if p.requires_grad), *leaves], next(model.parameters()).device
    count = min(lanes(device), len(parts))

    def lane(first):
        total, notes = None, []
        for part in parts[first::count]:
            loss, note = loss_of(part)
            new = torch.autograd.grad(loss, params, allow_unused=True, materialize_grads=True)
            total = new if total is None else [a.add_(b) for a, b in zip(total, new)]
            notes.append(note)
        return total, notes

    done = list(spread(lane, range(count), device))
    for i, p in enumerate(params):
        p.grad = done[0][0][i]
        for total, _ in done[1:]:
            p.grad.add_(total[i])
    return [done[i % count][1][i // count] for i in range(len(parts))]


def keep_memory():
    """Tell glibc to keep freed memory for the next step instead of handing it back and having every page zeroed again.

    Training frees and takes the same blocks each step; giving them back costs up to half of a small model's step. Does
    nothing where there is no glibc."""
    if sys.platform.startswith("linux"):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        for option, value in ((-3, 32 << 20), (-1, 2 ** 31 - 1)) if mallopt else ():     # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            mallopt(option, value)


def peak_mib():
    """Largest memory of this process so far in MiB; nan where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2 ** 20 if sys.platform == "darwin" else 2 ** 10)
