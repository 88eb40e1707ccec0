"""Small FMUs for tests of the import, written here in C: each equation is that of the FMI Reference-FMUs."""

import platform
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from jaxmbd.io.fmu.c_source import HERE
from jaxmbd.io.fmu.export import PROCESSORS, SYSTEMS
from tests.c_code import compiler

# One state machine for all of them: `model.h` gives sizes and equations.
SOURCE = r"""
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fmi3Functions.h"
#include "model.h"
/* x: states; p: parameters; d: what changes at events alone; value references: 0 time, then x, their rates, p, u, y */
typedef struct { double t, x[NX + 1], p[NP + 1], u[NU + 1], d[4]; } M;
static const double x_start[] = X_START, p_start[] = P_START;
#define EXPORT __attribute__((visibility("default")))
#define ONLY(name, ...) EXPORT fmi3Status name(fmi3Instance i, ##__VA_ARGS__)
static void rates(const M *m, double *r);
static double jacobian(const M *m, int row, int known, int *known_at_all);
#include "equations.h"
static M *made(fmi3String token) {
  if (strcmp(token, "{small}")) return NULL;
  M *m = calloc(1, sizeof *m);
  memcpy(m->x, x_start, sizeof(double) * NX), memcpy(m->p, p_start, sizeof(double) * NP), start(m);
  return m;
}
EXPORT fmi3Instance fmi3InstantiateModelExchange(fmi3String a, fmi3String token, fmi3String b, fmi3Boolean c,
  fmi3Boolean d, fmi3InstanceEnvironment e, fmi3LogMessageCallback f) { return made(token); }
EXPORT fmi3Instance fmi3InstantiateCoSimulation(fmi3String a, fmi3String token, fmi3String b, fmi3Boolean c,
  fmi3Boolean d, fmi3Boolean e, fmi3Boolean f, const fmi3ValueReference g[], size_t h, fmi3InstanceEnvironment j,
  fmi3LogMessageCallback k, fmi3IntermediateUpdateCallback l) { return made(token); }
EXPORT void fmi3FreeInstance(fmi3Instance i) { free(i); }
ONLY(fmi3EnterInitializationMode, fmi3Boolean a, fmi3Float64 b, fmi3Float64 t, fmi3Boolean d, fmi3Float64 e) {
  ((M *)i)->t = t; return fmi3OK; }
ONLY(fmi3ExitInitializationMode) { return fmi3OK; }
ONLY(fmi3EnterEventMode) { return fmi3OK; }
ONLY(fmi3EnterContinuousTimeMode) { return fmi3OK; }
ONLY(fmi3UpdateDiscreteStates, fmi3Boolean *a, fmi3Boolean *b, fmi3Boolean *c, fmi3Boolean *d, fmi3Boolean *e,
  fmi3Float64 *next) { *a = *b = *c = *d = *e = fmi3False; event(i); return fmi3OK; }
ONLY(fmi3SetTime, fmi3Float64 t) { ((M *)i)->t = t; return fmi3OK; }
ONLY(fmi3SetContinuousStates, const fmi3Float64 x[], size_t n) { memcpy(((M *)i)->x, x, n * 8); return fmi3OK; }
ONLY(fmi3GetContinuousStates, fmi3Float64 x[], size_t n) { memcpy(x, ((M *)i)->x, n * 8); return fmi3OK; }
ONLY(fmi3GetContinuousStateDerivatives, fmi3Float64 r[], size_t n) { rates(i, r); return fmi3OK; }
ONLY(fmi3GetEventIndicators, fmi3Float64 z[], size_t n) { if (n) z[0] = indicator(i); return fmi3OK; }
static double *place(M *m, unsigned k) {
  if (k == 0) return &m->t;
  if (k <= NX) return &m->x[k - 1];
  if (k <= 2 * NX) { static double r[NX + 1]; rates(m, r); return &r[k - 1 - NX]; }
  if (k <= 2 * NX + NP) return &m->p[k - 1 - 2 * NX];
  if (k <= 2 * NX + NP + NU) return &m->u[k - 1 - 2 * NX - NP];
  return NULL;
}
ONLY(fmi3GetFloat64, const fmi3ValueReference r[], size_t n, fmi3Float64 v[], size_t m) {
  for (size_t k = 0; k < n; k++) { if (!place(i, r[k])) return fmi3Error; v[k] = *place(i, r[k]); } return fmi3OK; }
ONLY(fmi3SetFloat64, const fmi3ValueReference r[], size_t n, const fmi3Float64 v[], size_t m) {
  for (size_t k = 0; k < n; k++) { if (!place(i, r[k])) return fmi3Error; *place(i, r[k]) = v[k]; } return fmi3OK; }
ONLY(fmi3GetDirectionalDerivative, const fmi3ValueReference u[], size_t nu, const fmi3ValueReference k[], size_t nk,
  const fmi3Float64 seed[], size_t ns, fmi3Float64 s[], size_t nse) {
  for (size_t a = 0; a < nu; a++) {
    s[a] = 0;
    for (size_t b = 0; b < nk; b++) {
      int ok = 0;
      s[a] += seed[b] * jacobian(i, (int)u[a] - 1 - NX, (int)k[b], &ok);
      if (!ok) return fmi3Error;
    }
  }
  return fmi3OK;
}
ONLY(fmi3GetFMUState, fmi3FMUState *s) { *s = memcpy(malloc(sizeof(M)), i, sizeof(M)); return fmi3OK; }
ONLY(fmi3SetFMUState, fmi3FMUState s) { memcpy(i, s, sizeof(M)); return fmi3OK; }
ONLY(fmi3FreeFMUState, fmi3FMUState *s) { free(*s); *s = NULL; return fmi3OK; }
ONLY(fmi3SerializedFMUStateSize, fmi3FMUState s, size_t *n) { *n = sizeof(M); return fmi3OK; }
ONLY(fmi3SerializeFMUState, fmi3FMUState s, fmi3Byte b[], size_t n) { memcpy(b, s, n); return fmi3OK; }
ONLY(fmi3DeserializeFMUState, const fmi3Byte b[], size_t n, fmi3FMUState *s) {
  *s = memcpy(malloc(n), b, n); return fmi3OK; }
ONLY(fmi3DoStep, fmi3Float64 t, fmi3Float64 h, fmi3Boolean a, fmi3Boolean *b, fmi3Boolean *c, fmi3Boolean *d,
  fmi3Float64 *last) {
  M *m = i; double r[NX + 1];
  if (fabs(m->t - t) > 1e-9) return fmi3Error;
  rates(m, r);
  for (int k = 0; k < NX; k++) m->x[k] += h * r[k]; /* Euler */
  *b = *c = *d = fmi3False, *last = m->t = t + h;
  return fmi3OK;
}
"""

VAN_DER_POL = {
    "sizes": (("x0", "x1"), ("mu",), (), 0), "starts": ((2.0, 0.0), (1.0,)),
    "code": r"""
static void start(M *m) {}
static void event(M *m) {}
static double indicator(const M *m) { return 1; }
static void rates(const M *m, double *r) {
  r[0] = m->x[1], r[1] = m->p[0] * (1 - m->x[0] * m->x[0]) * m->x[1] - m->x[0];
}
static double jacobian(const M *m, int row, int known, int *ok) {
  const double *x = m->x, mu = m->p[0];
  *ok = known == 1 || known == 2 || (known == 5 && KNOWS_MU);
  if (row == 0) return known == 2;
  if (known == 5 && KNOWS_MU == 2) return 0;
  return known == 1 ? -2 * mu * x[0] * x[1] - 1 : known == 2 ? mu * (1 - x[0] * x[0]) : (1 - x[0] * x[0]) * x[1];
}
""",
}  # fmt: skip
BALL = {
    "sizes": (("h", "v"), ("e",), (), 1), "starts": ((1.0, 0.0), (0.7,)),
    "code": r"""
static void start(M *m) { m->d[0] = -9.81; }
static void event(M *m) {
  if (m->x[0] > 0 || m->x[1] >= 0) return;
  m->x[0] = 2.2250738585072014e-308, m->x[1] *= -m->p[0];
  if (m->x[1] < 0.1) m->x[1] = 0, m->d[0] = 0; /* rests: gravity, a discrete state, is held */
}
static double indicator(const M *m) { return m->x[0]; }
static void rates(const M *m, double *r) { r[0] = m->x[1], r[1] = m->d[0]; }
static double jacobian(const M *m, int row, int known, int *ok) {
  *ok = known == 1 || known == 2 || known == 5;
  return row == 0 && known == 2;
}
""",
}  # fmt: skip
LAG = {
    "sizes": (("y",), ("k",), ("u",), 0), "starts": ((1.0,), (2.0,)),
    "code": r"""
static void start(M *m) {}
static void event(M *m) {}
static double indicator(const M *m) { return 1; }
static void rates(const M *m, double *r) { r[0] = m->p[0] * (m->u[0] - m->x[0]); }
static double jacobian(const M *m, int row, int known, int *ok) {
  *ok = known == 1 || known == 3 || known == 4;
  return known == 1 ? -m->p[0] : known == 4 ? m->p[0] : m->u[0] - m->x[0];
}
""",
}  # fmt: skip
MODELS = {"VanDerPol": VAN_DER_POL, "BouncingBall": BALL, "Lag": LAG}
ABLE = {"providesDirectionalDerivatives": True, "canGetAndSetFMUState": True, "canSerializeFMUState": True}


def described(name: str, able: dict[str, bool], extra: str = "") -> str:
    """`modelDescription.xml` of a model."""
    (states, parameters, inputs, indicators), (x, p) = MODELS[name]["sizes"], MODELS[name]["starts"]
    n, flags = len(states), "".join(f' {key}="{str(value).lower()}"' for key, value in able.items())
    variables = ['<Float64 name="time" valueReference="0" causality="independent"/>']
    variables += [
        f'<Float64 name="{one}" valueReference="{k}" causality="output" initial="exact" start="{value}"/>'
        for k, (one, value) in enumerate(zip(states, x, strict=True), 1)
    ]
    variables += [
        f'<Float64 name="der({one})" valueReference="{n + k}" derivative="{k}"/>' for k, one in enumerate(states, 1)
    ]
    variables += [
        f'<Float64 name="{one}" valueReference="{2 * n + k}" causality="parameter" variability="fixed" '
        f'start="{value}"/>'
        for k, (one, value) in enumerate(zip(parameters, p, strict=True), 1)
    ]
    variables += [
        f'<Float64 name="{one}" valueReference="{2 * n + len(p) + k}" causality="input" start="0"/>'
        for k, one in enumerate(inputs, 1)
    ]
    variables.append('<Int32 name="count" valueReference="99" causality="local" variability="discrete"/>')
    structure = [f'<Output valueReference="{k}"/>' for k in range(1, n + 1)]
    structure += [f'<ContinuousStateDerivative valueReference="{n + k}"/>' for k in range(1, n + 1)]
    structure += ['<EventIndicator valueReference="1"/>'] * indicators
    kinds = "".join(f'<{kind} modelIdentifier="small"{flags}/>' for kind in ("ModelExchange", "CoSimulation"))
    return (
        f'<?xml version="1.0"?>{extra}\n<fmiModelDescription fmiVersion="3.0" modelName="{name}" '
        f'instantiationToken="{{small}}">{kinds}\n<ModelVariables>{"".join(variables)}</ModelVariables>\n'
        f"<ModelStructure>{''.join(structure)}</ModelStructure></fmiModelDescription>"
    )


@cache
def _library(name: str, *flags: str) -> bytes:
    (states, parameters, inputs, _), (x, p) = MODELS[name]["sizes"], MODELS[name]["starts"]
    listed = lambda values: "{" + ", ".join(map(str, (*values, 0))) + "}"  # noqa: E731
    with tempfile.TemporaryDirectory() as place:
        Path(place, "small.c").write_text(SOURCE)
        Path(place, "equations.h").write_text(MODELS[name]["code"])
        Path(place, "model.h").write_text(
            f"#define NX {len(states)}\n#define NP {len(parameters)}\n#define NU {len(inputs)}\n"
            f"#define X_START {listed(x)}\n#define P_START {listed(p)}\n"
        )
        command = [compiler() or "cc", "-O1", "-fPIC", "-shared", "-w", *flags, f"-I{HERE / 'headers'}"]
        subprocess.run([*command, str(Path(place, "small.c")), "-o", str(Path(place, "small.so")), "-lm"], check=True)
        return Path(place, "small.so").read_bytes()


def small_fmu(folder: Path, name: str, called: str = "", knows_mu: int = 1, extra: str = "", **able: bool) -> Path:
    """The FMU of a model in a folder. `able`: flags of its description that are others than all true; `knows_mu`: 0 if
    it refuses derivatives by mu, 2 if it gives zeros."""

    path = folder / f"{called or name}.fmu"
    processor = PROCESSORS.get(platform.machine().lower(), platform.machine().lower())
    system, ending = SYSTEMS[platform.system()]
    system = "windows" if system == "win" else system
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("modelDescription.xml", described(name, ABLE | able, extra))
        archive.writestr(f"binaries/{processor}-{system}/small{ending}", _library(name, f"-DKNOWS_MU={knows_mu}"))
    return path
