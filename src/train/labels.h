/* Takes the number of classes, and their names, from the training rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* If the model is a classifier whose classes have no names yet, read the labels of the training
 * rows. If they do not fit the classes in the model's config.json, set *found to the classes of the
 * rows, and print them. If the user gave --num-labels or --class-names, set at most
 * found->problem_type. In all other cases, *found stays {0}. The caller frees *found with
 * fsdp_found_labels_fini(). Every rank reads the file. */
FSDP_MUST_CHECK fsdp_status fsdp_train_find_labels(const fsdp_trainer *t, fsdp_found_labels *found);
/* Set t->keeps_lm_head: whether a folder of a masked language model is trained as one. --task says
 * so, and without it the training rows do: if they have labels, a classifier is made of the model,
 * as AutoModelForSequenceClassification makes it. Print what the rows say. Every rank reads the
 * first row. */
FSDP_MUST_CHECK fsdp_status fsdp_train_choose_head(fsdp_trainer *t);
