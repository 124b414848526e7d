/* What lists of numbers are that rows have as labels: the classes of a row (indices), or a number
 * for each class (multi-hot). One list may be read in both ways, such as [0, 1] for two classes, so
 * the lists of all rows are looked at. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

/* What the lists so far show. Initialize with {0}. */
typedef struct fsdp_list_evidence {
    int64_t multi_hot_row, indices_row; /* the first row that shows it, from 1; 0: none */
    int64_t unclear_row;                /* the first row whose list alone shows nothing */
    int64_t length;                     /* numbers in the first list that is not empty */
    int64_t largest; /* the largest number, if all are whole; -1: none was found */
} fsdp_list_evidence;

/* Look at `list`, the label of row `row`, an array whose entries are not texts. `num_classes` is
 * the number of classes; INT32_MAX: unknown. */
void fsdp_list_evidence_add(fsdp_list_evidence *e, fsdp_json_node list, int64_t row,
                            int64_t num_classes);
/* Set *lists to what the lists are. Returns FSDP_ERR_FORMAT if they contradict each other, or show
 * nothing. `place` is what a row is called, "line" or "row". */
FSDP_MUST_CHECK fsdp_status fsdp_list_evidence_decide(const fsdp_list_evidence *e, const char *path,
                                                      const char *place, fsdp_label_lists *lists);
