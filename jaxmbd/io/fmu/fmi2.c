/* The functions of FMI 2.0, model exchange and co-simulation, around `instance.c`. This is the one file to be compiled. */

#include "model.c"
#include "motion.c"
#include "instance.c"

#define FMI2_FUNCTION_PREFIX MODEL_PREFIX
#include "headers/fmi2Functions.h"

#define I ((Instance *)c)
#define STATUS(call) ((fmi2Status)(call))

/* The logger takes a format. */
static void report(Instance *i, const int status) {
  const fmi2CallbackLogger logger = (fmi2CallbackLogger)i->logger;
  char text[2 * sizeof i->text], *end = text;
  for (const char *c = i->text; *c; c++) {
    if (*c == '%') *end++ = '%';
    *end++ = *c;
  }
  *end = 0;
  if (logger)
    logger(i->environment, i->name, (fmi2Status)status, status == DISCARD ? "logStatusDiscard" : "logStatusError", text);
}

const char *fmi2GetTypesPlatform(void) { return fmi2TypesPlatform; }
const char *fmi2GetVersion(void) { return fmi2Version; }

fmi2Status fmi2SetDebugLogging(fmi2Component c, fmi2Boolean loggingOn, size_t nCategories, const fmi2String categories[]) {
  (void)loggingOn; /* errors are told always, and there is nothing else */
  for (size_t k = 0; k < nCategories; k++)
    if (strcmp(categories[k], "logStatusError") && strcmp(categories[k], "logStatusDiscard"))
      return STATUS(fail(I, ERROR, "There is no category '%.80s': logStatusError, logStatusDiscard.", categories[k]));
  return fmi2OK;
}

fmi2Component fmi2Instantiate(fmi2String instanceName, fmi2Type fmuType, fmi2String fmuGUID,
                              fmi2String fmuResourceLocation, const fmi2CallbackFunctions *functions, fmi2Boolean visible,
                              fmi2Boolean loggingOn) {
  (void)fmuResourceLocation, (void)visible, (void)loggingOn;
  if (!functions) return NULL;
  return checked_instance(new_instance(instanceName, fmuType == fmi2CoSimulation, functions->componentEnvironment,
                                       (void (*)(void))functions->logger), fmuGUID);
}

void fmi2FreeInstance(fmi2Component c) { free(c); }

/* The times are set before Initialization Mode is entered. */
fmi2Status fmi2SetupExperiment(fmi2Component c, fmi2Boolean toleranceDefined, fmi2Real tolerance, fmi2Real startTime,
                               fmi2Boolean stopTimeDefined, fmi2Real stopTime) {
  (void)toleranceDefined, (void)tolerance; /* steps are constant */
  if (in_mode(I, INSTANTIATED, "fmi2SetupExperiment") != OK) return fmi2Error;
  I->kept.motion.t = startTime;
  I->kept.stop = stopTimeDefined ? stopTime : INFINITY;
  return fmi2OK;
}

fmi2Status fmi2EnterInitializationMode(fmi2Component c) {
  return STATUS(enter_initialization(I, I->kept.motion.t, I->kept.stop));
}

fmi2Status fmi2ExitInitializationMode(fmi2Component c) { return STATUS(exit_initialization(I)); }

fmi2Status fmi2Terminate(fmi2Component c) { return STATUS(change_mode(I, RUNNING, TERMINATED, "fmi2Terminate")); }

fmi2Status fmi2Reset(fmi2Component c) { return STATUS(reset(I)); }

/* --- variables, all of which are real ---------------------------------------------------------------------------- */

fmi2Status fmi2GetReal(fmi2Component c, const fmi2ValueReference vr[], size_t nvr, fmi2Real value[]) {
  return STATUS(get_values(I, vr, nvr, value));
}

fmi2Status fmi2SetReal(fmi2Component c, const fmi2ValueReference vr[], size_t nvr, const fmi2Real value[]) {
  return STATUS(set_values(I, vr, nvr, value));
}

#define NONE_OF(type)                                                                                              \
  fmi2Status fmi2Get##type(fmi2Component c, const fmi2ValueReference vr[], size_t nvr, fmi2##type value[]) {       \
    (void)vr, (void)value;                                                                                         \
    return nvr ? STATUS(fail(I, ERROR, "There are no variables of the type " #type ": all are of the type Real.")) \
               : fmi2OK;                                                                                           \
  }                                                                                                                \
  fmi2Status fmi2Set##type(fmi2Component c, const fmi2ValueReference vr[], size_t nvr, const fmi2##type value[]) { \
    (void)vr, (void)value;                                                                                         \
    return nvr ? STATUS(fail(I, ERROR, "There are no variables of the type " #type ": all are of the type Real.")) \
               : fmi2OK;                                                                                           \
  }
NONE_OF(Integer)
NONE_OF(Boolean)
NONE_OF(String)

/* --- states that are kept ---------------------------------------------------------------------------------------- */

fmi2Status fmi2GetFMUstate(fmi2Component c, fmi2FMUstate *FMUstate) { return STATUS(keep(I, FMUstate)); }

fmi2Status fmi2SetFMUstate(fmi2Component c, fmi2FMUstate FMUstate) { return STATUS(restore(I, FMUstate)); }

fmi2Status fmi2FreeFMUstate(fmi2Component c, fmi2FMUstate *FMUstate) {
  (void)c;
  free(*FMUstate);
  *FMUstate = NULL;
  return fmi2OK;
}

fmi2Status fmi2SerializedFMUstateSize(fmi2Component c, fmi2FMUstate FMUstate, size_t *size) {
  (void)c, (void)FMUstate;
  *size = SERIALIZED;
  return fmi2OK;
}

fmi2Status fmi2SerializeFMUstate(fmi2Component c, fmi2FMUstate FMUstate, fmi2Byte serializedState[], size_t size) {
  return STATUS(serialize(I, FMUstate, serializedState, size));
}

fmi2Status fmi2DeSerializeFMUstate(fmi2Component c, const fmi2Byte serializedState[], size_t size, fmi2FMUstate *FMUstate) {
  return STATUS(deserialize(I, serializedState, size, FMUstate));
}

/* --- derivatives ------------------------------------------------------------------------------------------------- */

fmi2Status fmi2GetDirectionalDerivative(fmi2Component c, const fmi2ValueReference vUnknown_ref[], size_t nUnknown,
                                        const fmi2ValueReference vKnown_ref[], size_t nKnown, const fmi2Real dvKnown[],
                                        fmi2Real dvUnknown[]) {
  return STATUS(forward(I, vUnknown_ref, nUnknown, vKnown_ref, nKnown, dvKnown, dvUnknown));
}

/* --- model exchange ---------------------------------------------------------------------------------------------- */

fmi2Status fmi2EnterEventMode(fmi2Component c) {
  return STATUS(change_mode(I, CONTINUOUS | EVENT, EVENT, "fmi2EnterEventMode"));
}

fmi2Status fmi2NewDiscreteStates(fmi2Component c, fmi2EventInfo *fmi2eventInfo) {
  int changed = 0;
  double next = INFINITY;
  const int status = update(I, &changed, &next);
  memset(fmi2eventInfo, 0, sizeof *fmi2eventInfo);
  fmi2eventInfo->valuesOfContinuousStatesChanged = changed;
  fmi2eventInfo->nextEventTimeDefined = next < INFINITY;
  fmi2eventInfo->nextEventTime = next < INFINITY ? next : 0;
  return STATUS(status);
}

fmi2Status fmi2EnterContinuousTimeMode(fmi2Component c) {
  return STATUS(change_mode(I, EVENT, CONTINUOUS, "fmi2EnterContinuousTimeMode"));
}

fmi2Status fmi2CompletedIntegratorStep(fmi2Component c, fmi2Boolean noSetFMUStatePriorToCurrentPoint,
                                       fmi2Boolean *enterEventMode, fmi2Boolean *terminateSimulation) {
  (void)noSetFMUStatePriorToCurrentPoint;
  *enterEventMode = *terminateSimulation = fmi2False;
  return STATUS(completed_step(I));
}

fmi2Status fmi2SetTime(fmi2Component c, fmi2Real time) { return STATUS(set_time(I, time)); }

fmi2Status fmi2SetContinuousStates(fmi2Component c, const fmi2Real x[], size_t nx) { return STATUS(set_states(I, x, nx)); }

fmi2Status fmi2GetDerivatives(fmi2Component c, fmi2Real derivatives[], size_t nx) {
  return STATUS(get_rates(I, derivatives, nx));
}

fmi2Status fmi2GetEventIndicators(fmi2Component c, fmi2Real eventIndicators[], size_t ni) {
  return STATUS(get_indicators(I, eventIndicators, ni));
}

fmi2Status fmi2GetContinuousStates(fmi2Component c, fmi2Real x[], size_t nx) { return STATUS(get_states(I, x, nx)); }

fmi2Status fmi2GetNominalsOfContinuousStates(fmi2Component c, fmi2Real x_nominal[], size_t nx) {
  return STATUS(get_nominals(I, x_nominal, nx));
}

/* --- co-simulation ----------------------------------------------------------------------------------------------- */

fmi2Status fmi2DoStep(fmi2Component c, fmi2Real currentCommunicationPoint, fmi2Real communicationStepSize,
                      fmi2Boolean noSetFMUStatePriorToCurrentPoint) {
  (void)noSetFMUStatePriorToCurrentPoint;
  return STATUS(do_step(I, currentCommunicationPoint, communicationStepSize));
}

fmi2Status fmi2GetRealStatus(fmi2Component c, const fmi2StatusKind s, fmi2Real *value) {
  if (s != fmi2LastSuccessfulTime) return STATUS(fail(I, ERROR, "fmi2GetRealStatus tells the last successful time alone."));
  *value = I->kept.motion.t;
  return fmi2OK;
}

fmi2Status fmi2GetBooleanStatus(fmi2Component c, const fmi2StatusKind s, fmi2Boolean *value) {
  if (s != fmi2Terminated) return STATUS(fail(I, ERROR, "fmi2GetBooleanStatus tells whether the model ends alone."));
  *value = fmi2False;
  return fmi2OK;
}

/* What this model does not have, as its description says. */
#define UNSUPPORTED(function, ...)                                                                        \
  fmi2Status function(fmi2Component c, __VA_ARGS__) {                                                     \
    return STATUS(fail(I, ERROR, #function ": this model does not have that, as its description says.")); \
  }
UNSUPPORTED(fmi2SetRealInputDerivatives, const fmi2ValueReference a[], size_t b, const fmi2Integer d[], const fmi2Real e[])
UNSUPPORTED(fmi2GetRealOutputDerivatives, const fmi2ValueReference a[], size_t b, const fmi2Integer d[], fmi2Real e[])
UNSUPPORTED(fmi2GetStatus, const fmi2StatusKind a, fmi2Status *b)
UNSUPPORTED(fmi2GetIntegerStatus, const fmi2StatusKind a, fmi2Integer *b)
UNSUPPORTED(fmi2GetStringStatus, const fmi2StatusKind a, fmi2String *b)

fmi2Status fmi2CancelStep(fmi2Component c) { return STATUS(fail(I, ERROR, "fmi2CancelStep: steps end when they return.")); }
