"""grpo_lib: reinforcement learning with verifiable rewards, small enough to read beside the paper.

Nothing is imported here, so `from grpo_lib.analysis import pass_at_k` starts without torch.
"""
