"""What a waiting interpreter loads before there is a program, so that the program finds it loaded.

Nothing here may change what a program sees: a module is only ever imported, and the rehearsal leaves no figure behind.
"""

# Small packages apart from the large ones that need them: a request can only be noticed between two imports.
MODULES = (
    "json",
    "asyncio",
    "multiprocessing",
    "numpy",
    "pyarrow",
    "PIL.Image",
    "pandas",
    "matplotlib.figure",
    "matplotlib.pyplot",
    "pandas.plotting._matplotlib",
)


def steps():
    """Load everything, pausing after each step for the caller to look whether it is time to stop."""
    for module in MODULES:
        __import__(module)
        yield
    yield from rehearsal()


def rehearsal():
    """Use the large packages once: much of them is built on first use, and their code pages come in from disk."""
    import io

    import pandas
    from matplotlib import pyplot

    frame = pandas.read_csv(io.StringIO("name,value\na,1\nb,2.5\n"))
    str(frame.describe())
    str(frame.groupby("name").sum())
    yield
    pyplot.plot([1, 2, 3], label="x")
    pyplot.title("x")
    pyplot.legend()
    yield
    pyplot.savefig(io.BytesIO())
    pyplot.close("all")
