"""The program text of ``layers.py``: what a user imports to record a run for ``--compare``."""

RECORDER = '''"""Record what every layer computes, for `lightloom migrate --compare A B`.

    import layers
    layers.record(model, "old.jsonl", steps=3)   # before the loop
    ...
    layers.step(loss)                            # after each step

Works on CUDA and NPU alike. Fixed seed, dropout 0, the same batch order on both sides.
"""

import json

import torch

STATE = {}
SAMPLE = 256


def record(model, path, steps=3):
    """Hook every leaf module; write the first `steps` steps of this process to `path`."""
    STATE.update(file=open(path, "w"), step=0, steps=steps)
    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(_hook(name, "forward"))
            for param, tensor in module.named_parameters(recurse=False):
                if tensor.requires_grad:
                    tensor.register_hook(_grad(f"{name}.{param}"))


def step(loss):
    """Write the loss and go to the next step."""
    if STATE["step"] < STATE["steps"]:
        _write("loss", "loss", loss.detach())
    STATE["step"] += 1
    if STATE["step"] == STATE["steps"]:
        STATE["file"].close()


def _hook(name, phase):
    def hook(module, args, out):
        first = out[0] if isinstance(out, (tuple, list)) else out
        if torch.is_tensor(first):
            _write(name, phase, first.detach())

    return hook


def _grad(name):
    def hook(tensor):
        _write(name, "gradient", tensor.detach())

    return hook


def _write(name, phase, tensor):
    if STATE["step"] >= STATE["steps"] or STATE["file"].closed:
        return
    flat = tensor.reshape(-1).float()
    stride = max(1, flat.numel() // SAMPLE)
    values = flat[::stride][:SAMPLE].cpu().tolist()
    line = {"step": STATE["step"], "layer": name, "phase": phase, "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).replace("torch.", ""), "norm": flat.norm().item(),
            "values": values}
    STATE["file"].write(json.dumps(line) + "\\n")
'''
