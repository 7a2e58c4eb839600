"""What every figure of the series keeps: one size, one look, nothing outside the picture. Used by the tests of the figures' modules."""
import io
import warnings

import matplotlib
from matplotlib import pyplot as plt
from matplotlib.image import imread

from grpo_lib import draw


def made_in(module):
    """Names of the figures that a module draws."""
    return {name for name, f in vars(module).items() if hasattr(f, "__wrapped__") and f.__module__ == module.__name__}


def dots(ax):
    """The x and y of every dot."""
    return [(x, y) for line in ax.lines if line.get_marker() == "o" for x, y in zip(line.get_xdata(), line.get_ydata())]


def keeps_the_style(call, height=3.2, framed=False):
    """Assert that the figure which call() draws, with title "t", is of this height in inches and in the series' look; framed: spines may show."""
    before = plt.get_fignums()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fig = call()
        picture = imread(io.BytesIO(draw.png(fig)))
    assert plt.get_fignums() == before, "a figure was left open"
    assert picture.shape[:2] == (round(height * 150), 900), f"{picture.shape} pixels, not 6 x {height} in at 150 dpi"
    assert picture[..., :3].std() > 0.02, "the picture is nearly blank"
    assert fig.get_suptitle() == "t"
    assert min(t.get_fontsize() for t in fig.findobj(matplotlib.text.Text) if t.get_text()) >= 8, "letters too small"
    width, high = fig.canvas.get_width_height()
    for ax in fig.axes:
        assert framed or not ax.spines["top"].get_visible() and not ax.spines["right"].get_visible()
        assert ax.get_legend() is None, "label lines at their ends instead"
        for text in (*ax.texts, ax.title, ax.xaxis.label, ax.yaxis.label):
            box = text.get_window_extent()
            inside = min(box.x0, box.y0) >= -1 and box.x1 <= width + 1 and box.y1 <= high + 1
            assert not text.get_text() or inside, f"{text.get_text()!r} at {box} of {width} x {high}"
