/* Takes the number of classes, and their names, from the training rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* If the model is a classifier whose classes have no names yet, read the labels of the training
 * rows. Set *found to them if they do not fit the classes of the model's config.json, and print so.
 * If the user gave --num-labels or --class-names, only found->problem_type is set. Otherwise *found
 * stays {0}. The caller frees *found with
 * fsdp_found_labels_fini(). Every rank reads the file. */
FSDP_MUST_CHECK fsdp_status fsdp_train_find_labels(const fsdp_trainer *t, fsdp_found_labels *found);
