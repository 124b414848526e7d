/* Texts and classes of rows for classification. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/data/rows/causal_text.h"

/* Encode a text or a pair of texts for a classifier, as transformers does with tokenizer(text,
 * pair, truncation=True, max_length=options->max_length): special tokens and segments are those of
 * the tokenizer, and the longer text is cut first. `pair` is {0} for a single text. Set *cut to the
 * number of ids that were cut off. If `cut` is NULL, they are not counted, which saves time. */
FSDP_MUST_CHECK fsdp_status fsdp_class_text_encode(const fsdp_dataset_options *options,
                                                   fsdp_data_text text, fsdp_data_text pair,
                                                   fsdp_example *example, int64_t *cut);

/* Set *class to the class that `label` names: one of options->class_names, or a number. If it is
 * neither, returns FSDP_ERR_FORMAT, and the message lists the labels that are allowed. */
FSDP_MUST_CHECK fsdp_status fsdp_class_of_label(const fsdp_dataset_options *options,
                                                const char *label, int32_t *class);
/* Set the options->num_classes targets of an example. `label` is the text of a number, of a list in
 * brackets or, for MULTI_LABEL, of a class name. Returns FSDP_ERR_FORMAT if the label is not what
 * options->problem_type requires. (label_numbers.c) */
FSDP_MUST_CHECK fsdp_status fsdp_label_numbers(const fsdp_dataset_options *options,
                                               const char *label, fsdp_example *example);
/* Like fsdp_label_numbers(), for a label that is a value of JSON. (label_numbers.c) */
FSDP_MUST_CHECK fsdp_status fsdp_label_numbers_of_json(const fsdp_dataset_options *options,
                                                       fsdp_json_node label, fsdp_example *example);
/* If `label` is a whole number, or several separated by commas, such as "3, 14", return how many
 * numbers it has. Otherwise return 0. */
size_t fsdp_label_numbers_listed(const char *label);
/* Return true if `label` is a whole number, such as "3" or "3.0", and set *number to it. */
bool fsdp_label_is_integer(const char *label, int64_t *number);
/* Return true if `label` is a finite number, and set *number to it. */
bool fsdp_label_is_number(const char *label, double *number);

/* The classes that the labels of a file have. */
typedef struct fsdp_found_labels {
    int64_t classes; /* number of classes; 1 for regression; 0: no row has a label */
    char **names;    /* [classes], sorted by strcmp() or in the order of the ClassLabel; NULL:
                        labels are numbers */
    fsdp_problem_type problem_type;
    fsdp_label_lists lists; /* MULTI_LABEL: what the numbers in lists mean; AUTO for other problem
                               types */
    int64_t rows;           /* number of rows */
} fsdp_found_labels;

/* Read the labels of the rows of `path`, of at most options->max_samples rows. (label_scan.c)
 * - If any label is not a number, all labels are names, and each different name is a class.
 * - If all labels are whole numbers, the number of classes is the largest label plus one.
 * - If all labels are numbers and some are not whole, the problem is regression. It is also
 *   regression if options->problem_type is REGRESSION.
 * - If labels are lists, or if options->problem_type is MULTI_LABEL, a row can have several
 *   classes. In lists of names, each different name is a class. Lists of numbers have indices of
 *   classes, or one number for each class (fsdp_label_lists_find()).
 * - If the label column is a ClassLabel of Arrow, its type gives the classes.
 * Returns FSDP_ERR_FORMAT if a whole number is negative or too large, or if there are more than
 * 20,000 names. */
FSDP_MUST_CHECK fsdp_status fsdp_labels_find(const char *path, const fsdp_dataset_options *options,
                                             fsdp_found_labels *labels);
void fsdp_found_labels_fini(fsdp_found_labels *labels);
/* Lists of numbers in the labels of `path` may be indices of classes, or have a number for each
 * class (multi-hot). Set *lists to options->label_lists or, if that is AUTO, to the kind that all
 * lists together show. Lists are not multi-hot if their lengths differ, or if a list has another
 * length than options->num_classes or a number above 1. They are not indices if a list contains a
 * number twice, or a fraction. If a file has lists of both kinds, or if the lists show neither
 * kind, return FSDP_ERR_FORMAT. If the rows cannot be read, set *lists to MULTI_HOT; the code that
 * reads the rows reports the error. (label_scan.c) */
FSDP_MUST_CHECK fsdp_status fsdp_label_lists_find(const char *path,
                                                  const fsdp_dataset_options *options,
                                                  fsdp_label_lists *lists);
/* Set *any to true if the first row of `path` has the label of a class, or a list of such labels.
 * Set it to false for plain text and token files, for rows of a masked language model, which have
 * one label for each id, and for rows that cannot be read. Fails only with FSDP_ERR_NOMEM.
 * (label_exists.c) */
FSDP_MUST_CHECK fsdp_status fsdp_labels_exist(const char *path, const fsdp_dataset_options *options,
                                              bool *any);
