/* Takes the number of classes, and their names, from the training rows. */
#pragma once
#include "src/train/trainer_internal.h"

/* If the model is a classifier, read the labels of the training rows, and set *found to what the
 * run takes from them. The first of these cases that applies determines *found:
 * - Only the rows have names of classes; config.json and --class-names have none. *found is set to
 *   the classes of the rows. If --num-labels is another number, return FSDP_ERR_INVALID.
 * - config.json has names of classes, or the user gave --num-labels or --class-names. *found gets
 *   no classes, but found->problem_type is set if rows have several classes.
 * - The labels do not fit the classes in config.json. *found is set to the classes of the rows.
 * In all other cases, *found stays {0}. Classes that were taken from the rows are printed. The
 * caller frees *found with fsdp_found_labels_fini(). Every rank reads the file. */
FSDP_MUST_CHECK fsdp_status fsdp_train_find_labels(const fsdp_trainer *t, fsdp_found_labels *found);
/* Decide whether a BertForMaskedLM is trained as a masked language model or becomes a classifier,
 * and print the decision. It becomes a classifier, as with AutoModelForSequenceClassification, if
 * the training rows have labels or if options such as --num-labels ask for classes. Otherwise
 * t->keeps_lm_head is set to true. Every rank reads the first row. Does nothing for other models,
 * and does nothing if --task was given. */
FSDP_MUST_CHECK fsdp_status fsdp_train_choose_head(fsdp_trainer *t);
