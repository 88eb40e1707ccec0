"""Pairs of sources of a user's function that compute something else, and expressions that read more than arguments."""

HEAD = """
import array, collections, contextvars, ctypes, dataclasses, enum, functools, math, operator, os, sys, types, typing
from decimal import Decimal
from pathlib import Path
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
"""

# Name and source; the other source of a pair has 3. in place of 2., or is given.
PAIRS: list[tuple[str, ...]] = [
    ("global float", "K=2.0\ndef f(x): return K*x"),
    ("global np array", "K=np.arange(3.)\ndef f(x): return K*x", "K=np.arange(3.)+1\ndef f(x): return K*x"),
    ("global jnp array", "K=jnp.arange(3.)\ndef f(x): return K*x", "K=jnp.arange(3.)+1\ndef f(x): return K*x"),
    ("default arg", "def f(x,k=2.): return k*x"),
    ("kwonly default", "def f(x,*,k=2.): return k*x"),
    ("nested fn global", "K=2.\ndef g(x): return K*x\ndef f(x): return g(x)"),
    ("dict dispatch", "def g(x): return 2.*x\nT={'a':g}\ndef f(x): return T['a'](x)"),
    ("list of lambdas", "T=[lambda x:2.*x]\ndef f(x): return T[0](x)"),
    ("class attr", "class C:\n k=2.\ndef f(x): return C.k*x"),
    ("inherited", "class B:\n def m(self,x): return 2.*x\nclass C(B): pass\ndef f(x): return C().m(x)"),
    ("instance attr", "class C: pass\nc=C(); c.k=2.\ndef f(x): return c.k*x"),
    ("slots", "class C:\n __slots__=('k',)\nc=C(); c.k=2.\ndef f(x): return c.k*x"),
    (
        "reduce lies",
        "class C:\n def __reduce__(self): return (C,())\n k=2.\nc=C(); c.q=2.\ndef f(x): return c.q*x",
        "class C:\n def __reduce__(self): return (C,())\n k=2.\nc=C(); c.q=3.\ndef f(x): return c.q*x",
    ),
    ("getstate lies", "class C:\n def __getstate__(self): return {}\nc=C(); c.q=2.\ndef f(x): return c.q*x"),
    ("getattr global", "class C: pass\nc=C(); c.k=2.\ndef f(x): return getattr(c,'k')*x"),
    ("property", "class C:\n @property\n def k(self): return 2.\nc=C()\ndef f(x): return c.k*x"),
    (
        "cached_property",
        "class C:\n @functools.cached_property\n def k(self): return 2.\nc=C()\ndef f(x): return c.k*x",
    ),
    ("staticmethod", "class C:\n @staticmethod\n def k(x): return 2.*x\ndef f(x): return C.k(x)"),
    (
        "metaclass",
        "class M(type):\n @property\n def k(c): return 2.\nclass C(metaclass=M): pass\ndef f(x): return C.k*x",
    ),
    ("lru_cache", "@functools.lru_cache\ndef k(): return 2.\ndef f(x): return k()*x"),
    ("wraps", "def deco(g):\n @functools.wraps(g)\n def h(x): return 2.*g(x)\n return h\n@deco\ndef f(x): return x"),
    ("partial", "def g(k,x): return k*x\nf=functools.partial(g,2.)"),
    ("partial subclass", "class Pt(functools.partial): pass\ndef g(k,x): return k*x\nf=Pt(g,2.)"),
    (
        "methodcaller",
        "c=operator.itemgetter(1)\ndef f(x): return c([2.,3.])*x",
        "c=operator.itemgetter(0)\ndef f(x): return c([2.,3.])*x",
    ),
    ("set of tuples", "S={(1,2.)}\ndef f(x): return sum(b for a,b in S)*x"),
    ("enum", "class E(enum.Enum):\n A=2.\ndef f(x): return E.A.value*x"),
    ("namedtuple default", "N=collections.namedtuple('N','a b',defaults=[2.])\ndef f(x): return N(1.).b*x"),
    ("dataclass default", "@dataclasses.dataclass\nclass C:\n k:float=2.\ndef f(x): return C().k*x"),
    (
        "eqx static",
        "class C(eqx.Module):\n k:float=eqx.field(static=True,default=2.)\n def __call__(s,x): return s.k*x\nf=C()",
    ),
    ("-0.0 const", "def f(x): return x*0.0", "def f(x): return x*-0.0"),
    ("1 vs True", "K=1\ndef f(x): return x if K is True else 2*x", "K=True\ndef f(x): return x if K is True else 2*x"),
    ("int vs float const", "def f(x): return x**2", "def f(x): return x**2.0"),
    ("closure", "def mk(k):\n return lambda x:k*x\nf=mk(2.)"),
    ("module attr of known lib (np.K)", "np.MYK=2.\ndef f(x): return np.MYK*x"),
    ("monkeypatched jnp.sin", "_s=jnp.cos\njnp.mysin=lambda x:2.*x\ndef f(x): return jnp.mysin(x)"),
    ("math constant via getattr", "setattr(math,'KK',2.)\ndef f(x): return getattr(math,'KK')*x"),
    ("types.SimpleNamespace", "c=types.SimpleNamespace(k=2.)\ndef f(x): return c.k*x"),
    ("user module import", "import sub as s\ndef f(x): return s.k*x", "import sub as s\ndef f(x): return 2*s.k*x/2"),
    ("vars()", "K=2.\ndef f(x): return __builtins__['vars']()['x']*K"),
    ("sys._getframe", "import sys\nK=2.\ndef f(x): return sys._getframe().f_globals['K']*x"),
    ("f.__globals__", "K=2.\ndef f(x): return f.__globals__['K']*x"),
    ("function attribute", "def f(x): return f.k*x\nf.k=2."),
    ("np.poly1d", "p=np.poly1d([2.])\ndef f(x): return p.coeffs[0]*x"),
    ("np.vectorize", "p=np.vectorize(lambda x:2.*x)\ndef f(x): return p(x)"),
    ("np object array", "p=np.array([lambda x:2.*x],object)\ndef f(x): return p[0](x)"),
    ("ndarray subclass attr", "class A(np.ndarray): pass\np=np.zeros(1).view(A); p.k=2.\ndef f(x): return p.k*x"),
    ("dict subclass attr", "class A(dict): pass\np=A(); p.k=2.\ndef f(x): return p.k*x"),
    ("float subclass attr", "class A(float): pass\np=A(1); p.k=2.\ndef f(x): return p.k*x"),
    ("jax.jit wrapped", "import jax\n@jax.jit\ndef g(x): return 2.*x\ndef f(x): return g(x)"),
    (
        "custom_jvp",
        "import jax\n@jax.custom_jvp\ndef g(x): return x\ng.defjvps(lambda t,a,x:2.*t)\ndef f(x): return g(x)",
    ),
    (
        "generator expr order dict",
        "T={'a':1.,'b':2.}\ndef f(x): return sum(v*(i+1) for i,v in enumerate(T.values()))*x",
        "T={'b':2.,'a':1.}\ndef f(x): return sum(v*(i+1) for i,v in enumerate(T.values()))*x",
    ),
    (
        "frozenset floats nan",
        "S=frozenset([1.0])\ndef f(x): return (2. if 1 in S else 3.)*x",
        "S=frozenset(['1.0'])\ndef f(x): return (2. if 1 in S else 3.)*x",
    ),
    ("np dtype const", "K=np.float32\ndef f(x): return x.astype(K)", "K=np.float16\ndef f(x): return x.astype(K)"),
    ("descriptor", "class Dd:\n def __get__(s,o,t): return 2.\nclass C:\n k=Dd()\ndef f(x): return C.k*x"),
    ("__getattr__", "class C:\n def __getattr__(s,n): return 2.\nc=C()\ndef f(x): return c.k*x"),
    ("exception table", "def f(x):\n try: return {}['a']*x\n except KeyError: return 2.*x"),
    (
        "exception table only",
        "def f(x):\n try:\n  y={}['a']\n except KeyError: y=2.\n return y*x",
        "def f(x):\n try:\n  y={}['b']\n except KeyError: y=2.\n return y*x",
    ),
    (
        "os.getenv",
        "import os\ndef f(x): return float(os.getenv('KK','2'))*x",
        "import os\ndef f(x): return float(os.getenv('KK','2'))*x*1",
    ),
    (
        "pathlib read_text",
        "from pathlib import Path\ndef f(x): return float(Path('k').read_text())*x",
        "from pathlib import Path\ndef f(x): return float(Path('k').read_text())*x*1",
    ),
    ("weakref/ctypes", "import ctypes\nk=ctypes.c_double(2.)\ndef f(x): return k.value*x"),
    ("array.array", "import array\nk=array.array('d',[2.])\ndef f(x): return k[0]*x"),
    (
        "Decimal",
        "from decimal import Decimal\nk=Decimal(2)\ndef f(x): return float(k)*x",
        "from decimal import Decimal\nk=Decimal(3)\ndef f(x): return float(k)*x",
    ),
    ("contextvar", "import contextvars\nk=contextvars.ContextVar('k',default=2.)\ndef f(x): return k.get()*x"),
    ("class __call__ via obj", "class C:\n def __call__(s,x): return 2.*x\nf=C()"),
    ("bound method", "class C:\n k=2.\n def m(s,x): return s.k*x\nf=C().m"),
    ("classmethod bound", "class C:\n k=2.\n @classmethod\n def m(s,x): return s.k*x\nf=C.m"),
    (
        "typing.NamedTuple method",
        "class N(typing.NamedTuple):\n a:float=1.\n def m(s,x): return 2.*x\nn=N()\ndef f(x): return n.m(x)",
    ),
    ("mutable default via closure cell list", "L=[2.]\ndef mk(L):\n return lambda x:L[0]*x\nf=mk(L)"),
]

READING = """
import builtins, csv, functools, importlib, io, json, math, os, random, sys, time
from datetime import datetime as dt
from importlib import import_module
from importlib.resources import files
from os import environ, environb, getenv
from pathlib import Path
from random import gauss
from time import monotonic, process_time, time_ns
from builtins import open as op
from numpy import loadtxt as lt
from numpy.random import default_rng
import jax
import jax.numpy as jnp
import numpy as np
R = np.random.default_rng(0)
rng = random.Random(0)
it = iter([1.0, 2.0, 3.0, 4.0])
"""

EXPRESSIONS = [
    "getenv('K','2')",
    "environ.get('K','2')",
    "environb.get(b'K',b'2')",
    "os.getenv('K','2')",
    "Path('k').read_text()",
    "gauss(0,1)",
    "default_rng().normal()",
    "R.normal()",
    "rng.random()",
    "monotonic()",
    "time_ns()",
    "process_time()",
    "dt.now().second",
    "lt('k')",
    "import_module('json').x",
    "__import__('json').x",
    "files('x')",
    "next(it)",
    "np.load('k')",
    "getattr(np,'load')('k')",
    "getattr(np,'lo'+'ad')('k')",
    "np.fromstring('1')",
    "np.lib.npyio.NpzFile('k')",
    "jnp.load('k')",
    "vars(np)['load']('k')",
    "np.__dict__['load']('k')",
    "math.__dict__['pi']",
    "id(jnp)",
    "hash('abc')",
    "len(globals())",
    "len(vars())",
    "len(dir())",
    "jax.config.jax_enable_x64",
    "jax.devices()[0].id",
    "jax.process_index()",
    "np.geterr()['over']=='warn'",
    "jnp.finfo(float).eps",
    "sys.argv[0]",
    "object().__hash__()",
    "jax.random.key(0)",
]
