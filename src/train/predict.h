/* Texts that the model generates in a validation (--predict-with-generate), and the measure that
 * decides which model is the best. */
#pragma once
#include "src/train/trainer_internal.h"

/* Check that texts can be generated, and set t->prediction. Called before the first step; no effect
 * without --predict-with-generate. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_predict_prepare(fsdp_trainer *t);
/* Generate a text for each validation row, and compare it with the row's labels. *scores is set to
 * the mean ROUGE scores, and *length to the mean number of new tokens. Both are the same on all
 * ranks, and do not depend on the number of ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_predict(fsdp_trainer *t, fsdp_rouge *scores, double *length);

/* Return the value of the measure that decides which model is the best (--metric-for-best-model). A
 * smaller value is better, so a measure for which a greater value is better is negated. */
double fsdp_best_measure(const fsdp_trainer *t, const fsdp_step_result *result,
                         const fsdp_rouge *scores);
/* Return the name of the measure that fsdp_best_measure() returns: "loss", "rougeL", ... */
const char *fsdp_best_measure_name(const fsdp_trainer *t);
