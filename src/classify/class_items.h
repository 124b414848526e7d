/* The texts that `fsdp classify` gets, each with the row that it comes from. */
#pragma once
#include "src/base/json.h"
#include "src/classify/classify.h"
#include "src/data/rows/causal_text.h"

typedef struct fsdp_class_item {
    fsdp_json *row; /* the row: the columns of CSV are texts; owned */
    fsdp_data_text text;
    fsdp_data_text pair; /* the second text; {0}: none. Both texts belong to `row`. */
} fsdp_class_item;

typedef struct fsdp_class_items { /* zero-filled: empty */
    fsdp_class_item *items;       /* [n]; owned */
    size_t n, cap;
    char *note; /* what was found out about the columns; NULL: nothing; owned */
} fsdp_class_items;

/* Read the texts of the command line and of the file. Returns FSDP_ERR_INVALID if there are none.
 * The caller frees *items with fsdp_class_items_fini(), also after an error. */
FSDP_MUST_CHECK fsdp_status fsdp_class_items_read(const fsdp_classify_config *config,
                                                  fsdp_class_items *items);
void fsdp_class_items_fini(fsdp_class_items *items);
