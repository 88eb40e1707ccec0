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
