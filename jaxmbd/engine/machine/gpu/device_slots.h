/* What stands for the slots of the virtual machine (`erk_slots.h`) in the text of a kernel: functions that are straight-line
   code. The text defines `slope`, `tangent` and `pull` of the programs that it has, and `begin_all`, `settles` and `deliver`. */

#define LANE_OF(v, l) (v)
#define EACH_LANE for (int l = 0; l < 1; l++)
#define WAITS(instances) 0
#define DIRECTIONS(m) 1
#define OFTEN 2147483647 /* no evaluations are counted */
#define COUNT(m, program, evaluations) ((void)0)

/* A program of a motion, with the numbers that it carries from the start of the motion to its stages. */
#define SLOTS(m, program) JOIN_(SLOTS, program)
#define RESULTS(m, program) JOIN_(RESULTS, program)
#define SLOPE(m, program, at, ...) JOIN_(slope, program)(m, (at)[program], __VA_ARGS__)
#define TANGENT(m, program, at, ...) JOIN_(tangent, program)(m, (at)[program], __VA_ARGS__)
#define PULL(m, program, at, ...) JOIN_(pull, program)(m, (at)[program], __VA_ARGS__)

typedef struct {
  const Motion *m;
  V *const *at, *const *waiting;
  int64_t first;
} JOIN(Slots, NAME);

INLINE void JOIN(fill, NAME)(JOIN(Slots, NAME) *s, V *const *at, const int64_t instance) {
  JOIN(begin_all, NAME)(s->m, at, &instance);
}

INLINE void JOIN(admit, NAME)(JOIN(Slots, NAME) *s, const int lane, const int64_t instance) {}

INLINE int64_t JOIN(engine, NAME)(const Call *c) { return STRAIGHT_LINE; }
