/* Labels may be lists of numbers. Such a list has either the indices of the row's classes, or a
 * number for each class (multi-hot). The functions below decide which of the two the lists of a
 * file are. A list such as [0, 1], for two classes, can be read in both ways, so the decision is
 * made from the lists of all rows. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

/* What the lists that were added so far show. Initialize with {0}. */
typedef struct fsdp_list_evidence {
    /* The first row whose list can only be multi-hot, and the first row whose list can only be
     * indices. Rows are counted from 1; 0: none. */
    int64_t multi_hot_row, indices_row;
    int64_t unclear_row; /* the first row whose list can be either of the two; 0: none */
    int64_t length;      /* length of the first list that is not empty */
    int64_t largest;     /* the largest number, if all numbers are whole; -1: no number was found */
} fsdp_list_evidence;

/* Add `list`, an array without texts that is the label of row `row`. `num_classes` is the number of
 * classes; INT32_MAX: unknown. */
void fsdp_list_evidence_add(fsdp_list_evidence *e, fsdp_json_node list, int64_t row,
                            int64_t num_classes);
/* Set *lists to the kind of the lists that were added. Returns FSDP_ERR_FORMAT if some lists can
 * only be indices and others can only be multi-hot, or if all lists can be both. Messages call a
 * row `place`: "line" or "row". */
FSDP_MUST_CHECK fsdp_status fsdp_list_evidence_decide(const fsdp_list_evidence *e, const char *path,
                                                      const char *place, fsdp_label_lists *lists);
