/* A driver of CUDA that has no GPU: the image of a kernel is the path of a library that was compiled from the same text
   as C, and a launch runs it at once, for all threads. STREAM stands for a stream, CONTEXT for that of a device. */

#include "gpu/launch.c"

static void *const STREAM = (void *)1, *const CONTEXT = (void *)2;
static int refused;  /* the status of launches */
static int launches; /* since the last look */

int cuModuleLoadData(void **module, const void *image) {
  return (*module = dlopen(image, RTLD_NOW | RTLD_LOCAL)) ? 0 : 200;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  char launched[64];
  snprintf(launched, sizeof launched, "%s_launched", name);
  return (*function = dlsym(module, launched)) ? 0 : 500;
}

int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, void *module, const char *name) {
  return (*address = (uintptr_t)dlsym(module, name)) ? 0 : 500;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned shared,
                   void *stream, void **parameters, void **extra) {
  if (refused || stream != STREAM) return refused;
  ((void (*)(void **))function)(parameters);
  launches++;
  return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
  return 0;
}

int cuStreamGetCtx(void *stream, void **context) { return *context = CONTEXT, stream == STREAM ? 0 : 400; }
int cuCtxPushCurrent_v2(void *context) { return context == CONTEXT ? 0 : 201; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuEventCreate(void **event, unsigned flags) { return *event = STREAM, 0; }
int cuEventRecord(void *event, void *stream) { return event == STREAM ? 0 : 400; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return event == STREAM ? 0 : 400; }
int cuGetErrorString(int status, const char **text) { return *text = "the stand-in refuses", 0; }

/* The handler for XLA on a CPU, which has no streams. */
static XLA_FFI_Error *stream_of(XLA_FFI_Stream_Get_Args *args) { return args->stream = STREAM, NULL; }

XLA_FFI_Error *stand_in_launch(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Api api = *frame->api;
  XLA_FFI_CallFrame changed = *frame;
  api.XLA_FFI_Stream_Get = stream_of, changed.api = &api;
  return jaxmbd_launch(&changed);
}

void stand_in_refuse(int status) { refused = status; }

int stand_in_launches(void) {
  const int count = launches;
  return launches = 0, count;
}
