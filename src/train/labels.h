/* Takes the number of classes, and their names, from the training rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* If the model is a classifier and the user gave neither --num-labels nor --class-names, read the
 * labels of the training rows. Set *found to them if they do not fit the classes of the model's
 * config.json, and print so. Otherwise *found stays {0}. The caller frees *found with
 * fsdp_found_labels_fini(). Every rank reads the file. */
FSDP_MUST_CHECK fsdp_status fsdp_train_find_labels(const fsdp_trainer *t, fsdp_found_labels *found);
