/* The functions of the header, around `motion.c`: for C programs that use a mechanism without FMI. */

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define OF(name) PASTE(MODEL_PREFIX, name)

int OF(start)(Motion *m) {
  motion_start(m);
  return motion_close(m);
}

int OF(close)(Motion *m) { return motion_close(m); }

int OF(advance)(Motion *m, double t) {
  Stages s;
  return t < m->t ? 0 : t > m->t ? motion_advance(m, &s, t) : 1;
}

void OF(state)(const Motion *m, double *x) { motion_report(m, x); }

void OF(outputs)(const Motion *m, double *y) { outputs(AT_NOW(m), y); }

void OF(rates)(const Motion *m, double *dx) { rates(AT_NOW(m), dx); }

void OF(tangents)(const Motion *m, double dt, const double *dx, const double *du, const double *dp, double *rates,
                  double *outputs) {
  tangents(AT_NOW(m), &dt, dx, du, dp, rates, outputs);
}

void OF(cotangents)(const Motion *m, const double *rates, const double *outputs, double *t, double *x, double *u, double *p) {
  cotangents(AT_NOW(m), rates, outputs, t, x, u, p);
}
