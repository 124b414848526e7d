/* The texts that `fsdp classify` gets, each with the row that it comes from. */
#pragma once
#include "src/base/json.h"
#include "src/classify/classify.h"

typedef struct fsdp_class_item {
    fsdp_json *row; /* the row: the columns of CSV are texts; owned */
    const char *text;
    const char *pair; /* the second text, or NULL. Both texts belong to `row`. */
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
