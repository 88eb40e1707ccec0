/* Calls a library of another system or architecture there, or where that is emulated: a program on a batch. Its arrays are
   in `call.h`, which `test_wheels.py` writes. Prints the results, the bits of one number a line. */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#ifdef _WIN32
#include <windows.h>
#define OPEN(path) LoadLibraryA(path)
#define FUNCTION(library, name) (void *)GetProcAddress(library, name)
#else
#include <dlfcn.h>
#define OPEN(path) dlopen(path, RTLD_NOW)
#define FUNCTION(library, name) dlsym(library, name)
#endif

#include "call.h"

typedef int Register(uint64_t, const int64_t *, const double *, const int32_t *, const int32_t *, const int32_t *,
                     const int32_t *, const int32_t *, const int32_t *, const int32_t *, const int32_t *, const int32_t *);
typedef int Run(int64_t wide, uint64_t key, int64_t batch, void **data, const int64_t *sizes, int64_t inputs,
                int64_t outputs);

int main(int count, char **arguments) {
  if (count < 2) return 2;
  void *library = (void *)OPEN(arguments[1]);
  if (!library) return 3;
  Register *enter = FUNCTION(library, "jaxmbd_register");
  Run *run = FUNCTION(library, "jaxmbd_call_program");
  if (!enter || !run) return 4;
  if (enter(7, table_0, table_1, table_2, table_3, table_4, table_5, table_6, table_7, table_8, table_9, table_10))
    return 5;
  if (run(1, 7, BATCH, data, sizes, INPUTS, OUTPUTS)) return 6;
  for (int64_t k = 0; k < OUTPUTS; k++)
    for (int64_t i = 0; i < BATCH; i++) printf("%016" PRIx64 "\n", ((uint64_t *)data[INPUTS + k])[i]);
  return 0;
}
