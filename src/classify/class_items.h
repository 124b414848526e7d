/* The input of `fsdp classify`: a list of texts, each with the row of the file that contains it. */
#pragma once
#include "src/base/json.h"
#include "src/classify/classify.h"
#include "src/data/rows/causal_text.h"

typedef struct fsdp_class_item {
    fsdp_json *row; /* a JSON object; the values of a row of CSV are strings; owned */
    fsdp_data_text text;
    fsdp_data_text pair; /* the second text; {0}: none. `text` and `pair` point into `row`. */
    /* The line of the file on which the row begins, counted from 1. For Arrow, the number of the
     * row. For a text of the command line, the number of the text. */
    int64_t line;
} fsdp_class_item;

typedef struct fsdp_class_items { /* Initialize with {0}, which is an empty list. */
    fsdp_class_item *items;       /* [n]; owned */
    size_t n, cap;
    char *note; /* a message for the user about the columns that were chosen; NULL: none; owned */
} fsdp_class_items;

/* Read the texts of the command line and of config->input. Returns FSDP_ERR_INVALID if there are
 * none. The caller frees *items with fsdp_class_items_fini(), even after an error. */
FSDP_MUST_CHECK fsdp_status fsdp_class_items_read(const fsdp_classify_config *config,
                                                  fsdp_class_items *items);
void fsdp_class_items_fini(fsdp_class_items *items);
