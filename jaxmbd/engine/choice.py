"""Who evaluates a function. All that decides it stands here: each limit with its unit, and what it was measured by, if
it was.

| evaluator | what it evaluates | what it asks for |
|---|---|---|
| NumPy code | what is traced, with known values | a trace; then the first to be ready, and the slowest for many calls |
| XLA | anything | seconds to compile; small matrices one after another |
| the interpreter of the virtual machine | programs: arithmetic of known size | a trace and a schedule |
| straight-line code | programs, compiled as C | seconds to compile; then 3 to 4 times as fast as the interpreter |
| a kernel | whole motions on a GPU, a thread for each instance | NVRTC, seconds to compile |
| diffrax's loop, by XLA | motions that are no program | seconds to compile |

The decisions are functions of sizes, so that each can be read, tested and changed by itself. What they need of the
computer (is there a C compiler, a GPU, NVRTC?) is asked by who calls them.
"""

from enum import Enum

# --- NumPy code, until XLA has compiled --------------------------------------------------------------------

# Compiling takes XLA about as long as NumPy takes for so many runs of a function's instructions, and some more. So the
# time is at most twice that of the better choice, however often the function is called. With 1,000 runs in place of 50
# the first motion of a slider-crank by diffrax's loop (85 steps, partitioned) took 61 s of CPU in place of 16.
NUMPY_RUNS = 50
NUMPY_MORE = 300  # instructions: what compiling the smallest function costs


def numpy_budget(instructions: int) -> int:
    """How many instructions of NumPy code are executed before a function is compiled, over all its calls."""
    return NUMPY_RUNS * (NUMPY_MORE + instructions)


# --- programs ----------------------------------------------------------------------------------------------

LAPS = 10_000  # iterations of a loop that are written out in a program; not measured
CANDIDATES = 2**15  # elements of a table among which a program chooses by selects; not measured
PIECE = 2**15  # operations that are scheduled together, so that their operands stay in the processor's caches

# A matrix of so few rows, and at most twice as many columns, is eliminated by operations of a program, in lanes; LAPACK
# is called once for each instance of a batch. With this, and without singular values, 16,384 assemblies of linkages
# take .03 s in place of .6 to 1.
SMALL_ROWS = 12
SMALL_UNKNOWNS = 24  # of a least-squares search: up to here a whole step is one program


def is_small(rows: int, columns: int) -> bool:
    """True if a program is to have the normal equations of a matrix: few rows, not more than columns."""
    return 0 < rows <= min(columns, SMALL_ROWS) and columns <= 2 * SMALL_ROWS


# --- straight-line code ------------------------------------------------------------------------------------

# After so many evaluations interpreting has taken about as long as compiling does: for each number of the code 1 ns an
# evaluation, and 0.06 to 0.2 ms (a four-bar linkage: 0.1 s for one instance, 0.3 s for lanes, on a Xeon with AVX-512).
INTERPRETED = 300_000
STRAIGHT_OPERATIONS = 20_000  # the C compiler takes a minute or more for so many


def is_worth_compiling(operations: int) -> bool:
    """True if the C compiler takes seconds rather than minutes for a program."""
    return operations <= STRAIGHT_OPERATIONS


# --- whole motions -----------------------------------------------------------------------------------------


class Hindrance(Enum):
    """Why a motion is left to diffrax's loop, in the order in which it is asked. The words follow "a motion"."""

    NONE = ""
    ASKED = "for which engine='diffrax' was asked"
    SEGMENT = "up to an event, a segment of one that is left to it"
    PROJECTION = "whose formulation changes the state after each step"
    PROGRESS = "with a progress bar"
    PLATFORM = "on a device that has no such engine"
    MACHINE = "on a computer without the virtual machine, which needs a C compiler once"
    ADJOINT = "with another adjoint"
    SOLVER = "whose solver is neither an explicit Runge-Kutta method nor Radau or Gauss"
    CONTROLLER = "with another step-size controller"
    FOREIGN = "with code of others, which runs outside of kernels"
    NO_PROGRAM = "whose right-hand side is no program: it has an iteration, say, or a large dense matrix"
    LARGE = "too large for the compiler of kernels"

    @property
    def number(self) -> int:
        """Its place, which compiled programs return."""
        return list(Hindrance).index(self)


def reason(engine: str, hindrance: int, operations: int) -> str:
    """Why a motion ran as it did, from the numbers in its `stats`, in words."""
    if engine == "diffrax":
        return f"diffrax's loop runs a motion {[*Hindrance][hindrance].value}"
    size = f"a program of {operations:,} operations at each stage"
    if engine == "native":
        return f"{size} runs as compiled code"
    if not is_worth_compiling(operations):
        return f"{size} is interpreted: for more than {STRAIGHT_OPERATIONS:,} compiling takes minutes"
    return f"{size} is interpreted until it has run {INTERPRETED:,} times, from which on compiling it pays"


# --- GPUs --------------------------------------------------------------------------------------------------

KERNEL_OPERATIONS = 12_000  # of all programs of a motion, which NVRTC compiles in about half a minute


def is_kernel(operations: int) -> bool:
    """True if a motion whose programs have so many operations is to be one kernel."""
    return operations <= KERNEL_OPERATIONS


# --- XLA ---------------------------------------------------------------------------------------------------

UNROLLED_ROWS = 4  # up to which XLA gets a factorisation written out: a call of LAPACK costs more than its work there
DENSE_ROWS = 100  # up to which XLA gets a sparse matrix as a dense one, for LAPACK
DENSE_SHARE = 0.25  # of nonzeros, in the matrix or in `L`, above which it does for any number of rows


def is_dense(rows: int, nonzeros: int) -> bool:
    """True if XLA is to factor a symmetric matrix with so many `nonzeros` in its lower triangle as a dense one."""
    return rows <= DENSE_ROWS or nonzeros > 0.5 * DENSE_SHARE * rows**2
