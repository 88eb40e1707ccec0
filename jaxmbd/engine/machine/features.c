/* Which of the instructions that `prebuilt.py` chooses by an x86 processor has, where the system does not tell. The bits
   are those of CPUID and XCR0 in the Intel 64 and IA-32 Architectures Software Developer's Manual, volumes 2A and 1. */

#include <cpuid.h>
#include <stdint.h>
#include <string.h>

enum { XMM_AND_YMM = 0x6, AND_ZMM = 0xe6 }; /* the registers that the system saves */

static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | (uint64_t)high << 32;
}

static void add(char *list, const char *name, const int there) {
  if (there) strcat(strcat(list, " "), name);
}

/* Their names as `/proc/cpuinfo` on Linux has them, each behind a space. Not for several threads at once. */
const char *jaxmbd_features(void) {
  static char list[256];
  unsigned eax, ebx, ecx, edx;
  list[0] = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return list;
  const uint64_t saved = ecx >> 27 & 1 ? saved_registers() : 0;
  const int ymm = (saved & XMM_AND_YMM) == XMM_AND_YMM, zmm = (saved & AND_ZMM) == AND_ZMM;
  add(list, "fma", ymm && ecx >> 12 & 1);
  add(list, "movbe", ecx >> 22 & 1);
  add(list, "f16c", ymm && ecx >> 29 & 1);
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    add(list, "bmi1", ebx >> 3 & 1);
    add(list, "avx2", ymm && ebx >> 5 & 1);
    add(list, "bmi2", ebx >> 8 & 1);
    add(list, "avx512f", zmm && ebx >> 16 & 1);
    add(list, "avx512dq", zmm && ebx >> 17 & 1);
    add(list, "avx512cd", zmm && ebx >> 28 & 1);
    add(list, "avx512bw", zmm && ebx >> 30 & 1);
    add(list, "avx512vl", zmm && ebx >> 31 & 1);
  }
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx)) add(list, "abm", ecx >> 5 & 1);
  return list;
}
