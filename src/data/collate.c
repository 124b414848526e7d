/* Combines examples into one packed batch. */
#include <fsdp/data.h>

#include <inttypes.h>

#include "src/base/alloc.h"
#include "src/data/collate.h"
#include "src/data/datasets/dataset.h"

/* Set *ids to the ids of `list`, or to NULL if the list is empty. A list that is not empty must
 * have the length of `source`. `what` is the name of the ids for an error message. */
static fsdp_status get_optional_list(const fsdp_token_list *list, const fsdp_token_list *source,
                                     const char *what, const int32_t **ids)
{
    *ids = list->len ? list->ids : NULL;
    if (list->len == 0 || list->len == source->len)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%zu %s for %zu ids", list->len, what, source->len);
}

/* Make a row of a batch. The row borrows the lists of `example`. */
static fsdp_status make_row(const fsdp_example *example, fsdp_batch_row *row)
{
    const fsdp_token_list *source = &example->source, *labels = &example->labels;
    if (source->len > INT32_MAX || labels->len > INT32_MAX || example->num_targets > INT32_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "more than 2^31 tokens");
    *row = (fsdp_batch_row){
        .source = source->ids,
        .labels = labels->len ? labels->ids : NULL,
        .source_len = (int32_t)source->len,
        .labels_len = (int32_t)labels->len,
        .targets = example->num_targets ? example->targets : NULL,
        .targets_len = (int32_t)example->num_targets,
    };
    FSDP_TRY(get_optional_list(&example->position_ids, source, "position_ids", &row->position_ids));
    return get_optional_list(&example->token_type_ids, source, "token_type_ids",
                             &row->token_type_ids);
}

static fsdp_status draw_examples(const fsdp_dataset *dataset, const int64_t *indices, int32_t count,
                                 const fsdp_draw *draw, fsdp_example *examples,
                                 fsdp_batch_row *rows)
{
    for (int32_t i = 0; i < count; i++) {
        FSDP_TRY(fsdp_dataset_draw(dataset, indices[i], draw, &examples[i]));
        fsdp_status status = make_row(&examples[i], &rows[i]);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "example %" PRId64, indices[i]);
            return status;
        }
    }
    return FSDP_OK;
}

fsdp_status fsdp_collate(const fsdp_dataset *dataset, const int64_t *indices, int32_t count,
                         const fsdp_batch_format *format, fsdp_batch **out)
{
    return fsdp_collate_drawn(dataset, indices, count, &(fsdp_draw){0}, format, out);
}

fsdp_status fsdp_collate_drawn(const fsdp_dataset *dataset, const int64_t *indices, int32_t count,
                               const fsdp_draw *draw, const fsdp_batch_format *format,
                               fsdp_batch **out)
{
    if (count < 0)
        return fsdp_error(FSDP_ERR_INVALID, "a batch of %d examples", (int)count);
    fsdp_example *examples = fsdp_calloc((size_t)count, sizeof *examples);
    fsdp_batch_row *rows = fsdp_calloc((size_t)count, sizeof *rows);
    fsdp_status status = examples && rows
                             ? draw_examples(dataset, indices, count, draw, examples, rows)
                             : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_batch_create(rows, count, format, out);
    for (int32_t i = 0; examples && i < count; i++)
        fsdp_example_fini(&examples[i]);
    fsdp_free(examples);
    fsdp_free(rows);
    return status;
}
