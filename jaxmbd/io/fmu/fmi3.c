/* The functions of FMI 3.0, model exchange and co-simulation, around `instance.c`. This is the one file to be compiled. */

#include "model.c"
#include "motion.c"
#include "instance.c"

#define FMI3_FUNCTION_PREFIX MODEL_PREFIX
#include "headers/fmi3Functions.h"

#define I ((Instance *)instance)
#define STATUS(call) ((fmi3Status)(call))

static void report(Instance *i, const int status) {
  const fmi3LogMessageCallback logger = (fmi3LogMessageCallback)i->logger;
  if (logger) logger(i->environment, (fmi3Status)status, status == DISCARD ? "logStatusDiscard" : "logStatusError", i->text);
}

const char *fmi3GetVersion(void) { return fmi3Version; }

fmi3Status fmi3SetDebugLogging(fmi3Instance instance, fmi3Boolean loggingOn, size_t nCategories,
                               const fmi3String categories[]) {
  (void)loggingOn; /* errors are told always, and there is nothing else */
  for (size_t k = 0; k < nCategories; k++)
    if (strcmp(categories[k], "logStatusError") && strcmp(categories[k], "logStatusDiscard"))
      return STATUS(fail(I, ERROR, "There is no category '%.80s': logStatusError, logStatusDiscard.", categories[k]));
  return fmi3OK;
}

fmi3Instance fmi3InstantiateModelExchange(fmi3String instanceName, fmi3String instantiationToken, fmi3String resourcePath,
                                          fmi3Boolean visible, fmi3Boolean loggingOn,
                                          fmi3InstanceEnvironment instanceEnvironment, fmi3LogMessageCallback logMessage) {
  (void)resourcePath, (void)visible, (void)loggingOn;
  return checked_instance(new_instance(instanceName, 0, instanceEnvironment, (void (*)(void))logMessage), instantiationToken);
}

fmi3Instance fmi3InstantiateCoSimulation(fmi3String instanceName, fmi3String instantiationToken, fmi3String resourcePath,
                                         fmi3Boolean visible, fmi3Boolean loggingOn, fmi3Boolean eventModeUsed,
                                         fmi3Boolean earlyReturnAllowed,
                                         const fmi3ValueReference requiredIntermediateVariables[],
                                         size_t nRequiredIntermediateVariables,
                                         fmi3InstanceEnvironment instanceEnvironment, fmi3LogMessageCallback logMessage,
                                         fmi3IntermediateUpdateCallback intermediateUpdate) {
  (void)resourcePath, (void)visible, (void)loggingOn, (void)eventModeUsed, (void)earlyReturnAllowed;
  (void)requiredIntermediateVariables, (void)nRequiredIntermediateVariables, (void)intermediateUpdate;
  return checked_instance(new_instance(instanceName, 1, instanceEnvironment, (void (*)(void))logMessage), instantiationToken);
}

fmi3Instance fmi3InstantiateScheduledExecution(fmi3String instanceName, fmi3String instantiationToken,
                                               fmi3String resourcePath, fmi3Boolean visible, fmi3Boolean loggingOn,
                                               fmi3InstanceEnvironment instanceEnvironment,
                                               fmi3LogMessageCallback logMessage, fmi3ClockUpdateCallback clockUpdate,
                                               fmi3LockPreemptionCallback lockPreemption,
                                               fmi3UnlockPreemptionCallback unlockPreemption) {
  (void)instanceName, (void)instantiationToken, (void)resourcePath, (void)visible, (void)loggingOn;
  (void)instanceEnvironment, (void)logMessage, (void)clockUpdate, (void)lockPreemption, (void)unlockPreemption;
  return NULL;
}

void fmi3FreeInstance(fmi3Instance instance) { free(instance); }

fmi3Status fmi3EnterInitializationMode(fmi3Instance instance, fmi3Boolean toleranceDefined, fmi3Float64 tolerance,
                                       fmi3Float64 startTime, fmi3Boolean stopTimeDefined, fmi3Float64 stopTime) {
  (void)toleranceDefined, (void)tolerance; /* steps are constant */
  return STATUS(enter_initialization(I, startTime, stopTimeDefined ? stopTime : INFINITY));
}

fmi3Status fmi3ExitInitializationMode(fmi3Instance instance) { return STATUS(exit_initialization(I)); }

fmi3Status fmi3EnterEventMode(fmi3Instance instance) {
  return STATUS(change_mode(I, CONTINUOUS, EVENT, "EnterEventMode"));
}

fmi3Status fmi3EnterContinuousTimeMode(fmi3Instance instance) {
  return STATUS(change_mode(I, EVENT, CONTINUOUS, "EnterContinuousTimeMode"));
}

fmi3Status fmi3EnterStepMode(fmi3Instance instance) {
  return STATUS(fail(I, ERROR, "EnterStepMode is not allowed: co-simulation of this model has no Event Mode."));
}

fmi3Status fmi3Terminate(fmi3Instance instance) { return STATUS(change_mode(I, RUNNING, TERMINATED, "Terminate")); }

fmi3Status fmi3Reset(fmi3Instance instance) { return STATUS(reset(I)); }

/* --- variables, all of which are numbers in double precision ------------------------------------------------------ */

fmi3Status fmi3GetFloat64(fmi3Instance instance, const fmi3ValueReference valueReferences[], size_t nValueReferences,
                          fmi3Float64 values[], size_t nValues) {
  if (nValues != nValueReferences) return STATUS(wrong_count(I, "fmi3GetFloat64", nValues, nValueReferences));
  return STATUS(get_values(I, valueReferences, nValueReferences, values));
}

fmi3Status fmi3SetFloat64(fmi3Instance instance, const fmi3ValueReference valueReferences[], size_t nValueReferences,
                          const fmi3Float64 values[], size_t nValues) {
  if (nValues != nValueReferences) return STATUS(wrong_count(I, "fmi3SetFloat64", nValues, nValueReferences));
  return STATUS(set_values(I, valueReferences, nValueReferences, values));
}

static fmi3Status of_no_type(Instance *i, const size_t n, const char *type) {
  return n ? STATUS(fail(i, ERROR, "There are no variables of the type %s: all are of the type Float64.", type)) : fmi3OK;
}

#define NONE_OF(type)                                                                                                     \
  fmi3Status fmi3Get##type(fmi3Instance instance, const fmi3ValueReference references[], size_t n, fmi3##type values[],   \
                           size_t count) {                                                                                \
    (void)references, (void)values, (void)count;                                                                          \
    return of_no_type(I, n, #type);                                                                                       \
  }                                                                                                                       \
  fmi3Status fmi3Set##type(fmi3Instance instance, const fmi3ValueReference references[], size_t n,                        \
                           const fmi3##type values[], size_t count) {                                                     \
    (void)references, (void)values, (void)count;                                                                          \
    return of_no_type(I, n, #type);                                                                                       \
  }
NONE_OF(Float32)
NONE_OF(Int8)
NONE_OF(UInt8)
NONE_OF(Int16)
NONE_OF(UInt16)
NONE_OF(Int32)
NONE_OF(UInt32)
NONE_OF(Int64)
NONE_OF(UInt64)
NONE_OF(Boolean)
NONE_OF(String)

fmi3Status fmi3GetBinary(fmi3Instance instance, const fmi3ValueReference valueReferences[], size_t nValueReferences,
                         size_t valueSizes[], fmi3Binary values[], size_t nValues) {
  (void)valueReferences, (void)valueSizes, (void)values, (void)nValues;
  return of_no_type(I, nValueReferences, "Binary");
}

fmi3Status fmi3SetBinary(fmi3Instance instance, const fmi3ValueReference valueReferences[], size_t nValueReferences,
                         const size_t valueSizes[], const fmi3Binary values[], size_t nValues) {
  (void)valueReferences, (void)valueSizes, (void)values, (void)nValues;
  return of_no_type(I, nValueReferences, "Binary");
}

fmi3Status fmi3GetClock(fmi3Instance instance, const fmi3ValueReference valueReferences[], size_t nValueReferences,
                        fmi3Clock values[]) {
  (void)valueReferences, (void)values;
  return of_no_type(I, nValueReferences, "Clock");
}

fmi3Status fmi3SetClock(fmi3Instance instance, const fmi3ValueReference valueReferences[], size_t nValueReferences,
                        const fmi3Clock values[]) {
  (void)valueReferences, (void)values;
  return of_no_type(I, nValueReferences, "Clock");
}

/* --- states that are kept ---------------------------------------------------------------------------------------- */

fmi3Status fmi3GetFMUState(fmi3Instance instance, fmi3FMUState *FMUState) { return STATUS(keep(I, FMUState)); }

fmi3Status fmi3SetFMUState(fmi3Instance instance, fmi3FMUState FMUState) { return STATUS(restore(I, FMUState)); }

fmi3Status fmi3FreeFMUState(fmi3Instance instance, fmi3FMUState *FMUState) {
  (void)instance;
  free(*FMUState);
  *FMUState = NULL;
  return fmi3OK;
}

fmi3Status fmi3SerializedFMUStateSize(fmi3Instance instance, fmi3FMUState FMUState, size_t *size) {
  (void)instance, (void)FMUState;
  *size = SERIALIZED;
  return fmi3OK;
}

fmi3Status fmi3SerializeFMUState(fmi3Instance instance, fmi3FMUState FMUState, fmi3Byte serializedState[], size_t size) {
  return STATUS(serialize(I, FMUState, serializedState, size));
}

fmi3Status fmi3DeserializeFMUState(fmi3Instance instance, const fmi3Byte serializedState[], size_t size,
                                   fmi3FMUState *FMUState) {
  return STATUS(deserialize(I, serializedState, size, FMUState));
}

/* --- derivatives ------------------------------------------------------------------------------------------------- */

fmi3Status fmi3GetDirectionalDerivative(fmi3Instance instance, const fmi3ValueReference unknowns[], size_t nUnknowns,
                                        const fmi3ValueReference knowns[], size_t nKnowns, const fmi3Float64 seed[],
                                        size_t nSeed, fmi3Float64 sensitivity[], size_t nSensitivity) {
  if (nSeed != nKnowns) return STATUS(wrong_count(I, "fmi3GetDirectionalDerivative: seed", nSeed, nKnowns));
  if (nSensitivity != nUnknowns)
    return STATUS(wrong_count(I, "fmi3GetDirectionalDerivative: sensitivity", nSensitivity, nUnknowns));
  return STATUS(forward(I, unknowns, nUnknowns, knowns, nKnowns, seed, sensitivity));
}

fmi3Status fmi3GetAdjointDerivative(fmi3Instance instance, const fmi3ValueReference unknowns[], size_t nUnknowns,
                                    const fmi3ValueReference knowns[], size_t nKnowns, const fmi3Float64 seed[],
                                    size_t nSeed, fmi3Float64 sensitivity[], size_t nSensitivity) {
  if (nSeed != nUnknowns) return STATUS(wrong_count(I, "fmi3GetAdjointDerivative: seed", nSeed, nUnknowns));
  if (nSensitivity != nKnowns)
    return STATUS(wrong_count(I, "fmi3GetAdjointDerivative: sensitivity", nSensitivity, nKnowns));
  return STATUS(adjoint(I, unknowns, nUnknowns, knowns, nKnowns, seed, sensitivity));
}

/* --- model exchange ---------------------------------------------------------------------------------------------- */

fmi3Status fmi3UpdateDiscreteStates(fmi3Instance instance, fmi3Boolean *discreteStatesNeedUpdate,
                                    fmi3Boolean *terminateSimulation, fmi3Boolean *nominalsOfContinuousStatesChanged,
                                    fmi3Boolean *valuesOfContinuousStatesChanged, fmi3Boolean *nextEventTimeDefined,
                                    fmi3Float64 *nextEventTime) {
  int changed = 0;
  double next = INFINITY;
  const int status = update(I, &changed, &next);
  *discreteStatesNeedUpdate = *terminateSimulation = *nominalsOfContinuousStatesChanged = fmi3False;
  *valuesOfContinuousStatesChanged = changed != 0;
  *nextEventTimeDefined = next < INFINITY;
  *nextEventTime = next < INFINITY ? next : 0;
  return STATUS(status);
}

fmi3Status fmi3EvaluateDiscreteStates(fmi3Instance instance) {
  return STATUS(in_mode(I, INITIALIZATION | EVENT, "fmi3EvaluateDiscreteStates"));
}

fmi3Status fmi3CompletedIntegratorStep(fmi3Instance instance, fmi3Boolean noSetFMUStatePriorToCurrentPoint,
                                       fmi3Boolean *enterEventMode, fmi3Boolean *terminateSimulation) {
  (void)noSetFMUStatePriorToCurrentPoint;
  *enterEventMode = *terminateSimulation = fmi3False;
  return STATUS(completed_step(I));
}

fmi3Status fmi3SetTime(fmi3Instance instance, fmi3Float64 time) { return STATUS(set_time(I, time)); }

fmi3Status fmi3SetContinuousStates(fmi3Instance instance, const fmi3Float64 continuousStates[], size_t nContinuousStates) {
  return STATUS(set_states(I, continuousStates, nContinuousStates));
}

fmi3Status fmi3GetContinuousStates(fmi3Instance instance, fmi3Float64 continuousStates[], size_t nContinuousStates) {
  return STATUS(get_states(I, continuousStates, nContinuousStates));
}

fmi3Status fmi3GetContinuousStateDerivatives(fmi3Instance instance, fmi3Float64 derivatives[], size_t nContinuousStates) {
  return STATUS(get_rates(I, derivatives, nContinuousStates));
}

fmi3Status fmi3GetNominalsOfContinuousStates(fmi3Instance instance, fmi3Float64 nominals[], size_t nContinuousStates) {
  return STATUS(get_nominals(I, nominals, nContinuousStates));
}

fmi3Status fmi3GetNumberOfContinuousStates(fmi3Instance instance, size_t *nContinuousStates) {
  (void)instance;
  *nContinuousStates = STATES;
  return fmi3OK;
}

fmi3Status fmi3GetNumberOfEventIndicators(fmi3Instance instance, size_t *nEventIndicators) {
  (void)instance;
  *nEventIndicators = HEIGHTS;
  return fmi3OK;
}

fmi3Status fmi3GetEventIndicators(fmi3Instance instance, fmi3Float64 eventIndicators[], size_t nEventIndicators) {
  return STATUS(get_indicators(I, eventIndicators, nEventIndicators));
}

/* --- co-simulation ----------------------------------------------------------------------------------------------- */

fmi3Status fmi3DoStep(fmi3Instance instance, fmi3Float64 currentCommunicationPoint, fmi3Float64 communicationStepSize,
                      fmi3Boolean noSetFMUStatePriorToCurrentPoint, fmi3Boolean *eventHandlingNeeded,
                      fmi3Boolean *terminateSimulation, fmi3Boolean *earlyReturn, fmi3Float64 *lastSuccessfulTime) {
  (void)noSetFMUStatePriorToCurrentPoint;
  *eventHandlingNeeded = *terminateSimulation = *earlyReturn = fmi3False;
  const int status = do_step(I, currentCommunicationPoint, communicationStepSize);
  *lastSuccessfulTime = I->kept.motion.t;
  return STATUS(status);
}

/* --- what this model does not have, as its description says ------------------------------------------------------- */

static fmi3Status unsupported(Instance *i, const char *function) {
  return STATUS(fail(i, ERROR, "%s: this model does not have that, as its description says.", function));
}

#define UNSUPPORTED(function, ...) \
  fmi3Status function(fmi3Instance instance, __VA_ARGS__) { return unsupported(I, #function); }

UNSUPPORTED(fmi3GetNumberOfVariableDependencies, fmi3ValueReference a, size_t *b)
UNSUPPORTED(fmi3GetVariableDependencies, fmi3ValueReference a, size_t b[], fmi3ValueReference c[], size_t d[],
            fmi3DependencyKind e[], size_t f)
UNSUPPORTED(fmi3GetOutputDerivatives, const fmi3ValueReference a[], size_t b, const fmi3Int32 c[], fmi3Float64 d[], size_t e)
UNSUPPORTED(fmi3GetIntervalDecimal, const fmi3ValueReference a[], size_t b, fmi3Float64 c[], fmi3IntervalQualifier d[])
UNSUPPORTED(fmi3GetIntervalFraction, const fmi3ValueReference a[], size_t b, fmi3UInt64 c[], fmi3UInt64 d[],
            fmi3IntervalQualifier e[])
UNSUPPORTED(fmi3GetShiftDecimal, const fmi3ValueReference a[], size_t b, fmi3Float64 c[])
UNSUPPORTED(fmi3GetShiftFraction, const fmi3ValueReference a[], size_t b, fmi3UInt64 c[], fmi3UInt64 d[])
UNSUPPORTED(fmi3SetIntervalDecimal, const fmi3ValueReference a[], size_t b, const fmi3Float64 c[])
UNSUPPORTED(fmi3SetIntervalFraction, const fmi3ValueReference a[], size_t b, const fmi3UInt64 c[], const fmi3UInt64 d[])
UNSUPPORTED(fmi3SetShiftDecimal, const fmi3ValueReference a[], size_t b, const fmi3Float64 c[])
UNSUPPORTED(fmi3SetShiftFraction, const fmi3ValueReference a[], size_t b, const fmi3UInt64 c[], const fmi3UInt64 d[])
UNSUPPORTED(fmi3ActivateModelPartition, fmi3ValueReference a, fmi3Float64 b)

fmi3Status fmi3EnterConfigurationMode(fmi3Instance instance) { return unsupported(I, "fmi3EnterConfigurationMode"); }
fmi3Status fmi3ExitConfigurationMode(fmi3Instance instance) { return unsupported(I, "fmi3ExitConfigurationMode"); }
