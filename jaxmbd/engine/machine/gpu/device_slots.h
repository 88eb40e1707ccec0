/* What stands for the slots of the virtual machine (`erk_slots.h`) in the text of a kernel: functions that are straight-line
   code. The text defines `begin`, and those of `slope`, `tangent`, `pull` and `after` that it needs. */

#define LANE_OF(v, l) (v)
#define EACH_LANE for (int l = 0; l < 1; l++)
#define WAITS(instances) 0
#define DIRECTIONS(m) 1
#define OFTEN 2147483647 /* no evaluations are counted */

typedef struct {
  const Motion *m;
  V *x, *waiting;
  int64_t first;
} JOIN(Slots, NAME);

INLINE void JOIN(fill, NAME)(JOIN(Slots, NAME) *s, V *x, const int64_t instance) {
  JOIN(begin, NAME)(s->m, x, &instance);
}

INLINE void JOIN(admit, NAME)(JOIN(Slots, NAME) *s, const int lane, const int64_t instance) {}

INLINE int64_t JOIN(engine, NAME)(const Call *c) { return STRAIGHT_LINE; }

INLINE void JOIN(count, NAME)(const Call *c, const int64_t evaluations) {}

/* No kernel closes joints after a step. */
#define CLOSES(m) 0

typedef struct {
  V *slots;
} JOIN(Closing, NAME);

INLINE int64_t JOIN(room_of_closing, NAME)(const Motion *m, const int sweeps, const int64_t directions) { return 0; }

INLINE JOIN(Closing, NAME) JOIN(closing_in, NAME)(const Motion *m, const int sweeps, V *room) {
  JOIN(Closing, NAME) none = {NULL};
  return none;
}

INLINE JOIN(Closing, NAME) JOIN(begin_closing, NAME)(const Motion *m, V *room, const int64_t *instances) {
  return JOIN(closing_in, NAME)(m, 1, room);
}

INLINE V JOIN(close, NAME)(const Motion *m, const JOIN(Closing, NAME) *c, const V *t, V *y, const V rests,
                           const int64_t *instances) { return 0; }

INLINE void JOIN(tangent_closing, NAME)(const Motion *m, const JOIN(Closing, NAME) *c, const V *t, const V *dt, V *dy,
                                        const V rests, const int64_t *instances) {}

INLINE void JOIN(pull_closing, NAME)(const Motion *m, const JOIN(Closing, NAME) *c, const V *t, V *ybar, V *bar, V *tbar,
                                     V *bars, const V rests, const int64_t *instances) {}

/* No kernel has an implicit method. */
#define IMPLICIT(m) 0
#define SLOTS_IMPLICIT(m, k) 0

typedef struct {
  V *programs[IMPLICIT_PROGRAMS], *iterate, *derivative, *work, *dwork, *found, *dfound;
} JOIN(Implicit, NAME);

INLINE V JOIN(implicit_step, NAME)(const Motion *m, const JOIN(Implicit, NAME) *g, const V t, const V end, const V *y, V *f,
                                   V *next, const int64_t *instances) { return 0; }

INLINE void JOIN(tangent_implicit, NAME)(const Motion *m, const JOIN(Implicit, NAME) *g, const V t, const V h, V *dy,
                                         const V *dt0, const V *dh, V *df, const int64_t *instances) {}

INLINE void JOIN(pull_implicit, NAME)(const Motion *m, const JOIN(Implicit, NAME) *g, const V t, const V h, const V *fbar,
                                      const V *nextbar, V *ybar, V *startbar, V *hbar, V *bars, const int64_t *instances) {}

INLINE int64_t JOIN(room_of_implicit, NAME)(const Motion *m) { return 0; }

INLINE JOIN(Implicit, NAME) JOIN(begin_implicit, NAME)(const Motion *m, V *iterate, V *room, const int64_t *instances) {
  JOIN(Implicit, NAME) none = {{NULL}};
  return none;
}
