/* Takes the number of classes, and their names, from the training rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* If the model is a classifier whose classes have no names yet, read the labels of the training
 * rows. If they do not fit the classes in the model's config.json, set *found to the classes of the
 * rows, and print them. If the classes have names, or if the user gave --num-labels or
 * --class-names, set only found->problem_type, and only if rows have several classes; but if rows
 * have names and --class-names was not given, set *found to the classes of the rows, and return
 * FSDP_ERR_INVALID if --num-labels is another number. In all other cases, *found stays {0}. The
 * caller frees *found with fsdp_found_labels_fini(). Every rank reads the file. */
FSDP_MUST_CHECK fsdp_status fsdp_train_find_labels(const fsdp_trainer *t, fsdp_found_labels *found);
/* Decide whether a BertForMaskedLM is trained as a masked language model or becomes a classifier,
 * and print the decision. It becomes a classifier, as with AutoModelForSequenceClassification, if
 * the training rows have labels or if options such as --num-labels ask for classes. Otherwise
 * t->keeps_lm_head is set to true. Every rank reads the first row. Does nothing for other models,
 * and does nothing if --task was given. */
FSDP_MUST_CHECK fsdp_status fsdp_train_choose_head(fsdp_trainer *t);
