/* The functions of <fsdp/data.h> that work on any dataset. They check their arguments and call the
 * functions in `ops`. */
#include "src/data/datasets/dataset.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/special_in_text.h"

struct fsdp_dataset {
    const fsdp_dataset_ops *ops;
    void *self;
    int64_t first, len;         /* the dataset has rows [first, first + len) of `self` */
    unsigned uses;              /* flags FSDP_USES_* */
    const char *note;           /* owned by `self`; NULL: none */
    fsdp_left_out_fn *left_out; /* NULL: see fsdp_dataset_set_left_out() */
    fsdp_get_cut_fn *get_cut;   /* NULL: no row is cut */
    char *file;                 /* see fsdp_dataset_set_file(); owned; NULL: not set */
    fsdp_file_rows file_rows;   /* in_split is 0 until fsdp_dataset_set_file_rows() is called */
};

fsdp_status fsdp_dataset_create(const fsdp_dataset_ops *ops, void *self, fsdp_dataset **out)
{
    fsdp_dataset *dataset = fsdp_calloc(1, sizeof *dataset);
    if (!dataset)
        return FSDP_ERR_NOMEM;
    *dataset = (fsdp_dataset){.ops = ops, .self = self, .len = ops->len(self)};
    *out = dataset;
    return FSDP_OK;
}

void fsdp_dataset_narrow(fsdp_dataset *dataset, int64_t first, int64_t len)
{
    dataset->first = first;
    dataset->len = len;
}

fsdp_file_rows fsdp_dataset_file_rows(const fsdp_dataset *dataset)
{
    return dataset->file_rows.in_split
               ? dataset->file_rows
               : (fsdp_file_rows){.count = dataset->len, .in_split = dataset->len};
}

void fsdp_dataset_set_file_rows(fsdp_dataset *dataset, fsdp_file_rows rows)
{
    dataset->file_rows = rows;
}

unsigned fsdp_dataset_uses(const fsdp_dataset *dataset)
{
    return dataset->uses;
}

void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses)
{
    dataset->uses = uses;
}

const char *fsdp_dataset_note(const fsdp_dataset *dataset)
{
    return dataset->note;
}

void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note)
{
    dataset->note = note;
}

void fsdp_dataset_set_left_out(fsdp_dataset *dataset, fsdp_left_out_fn *count)
{
    dataset->left_out = count;
}

void fsdp_dataset_set_get_cut(fsdp_dataset *dataset, fsdp_get_cut_fn *get_cut)
{
    dataset->get_cut = get_cut;
}

fsdp_status fsdp_dataset_set_file(fsdp_dataset *dataset, const char *path)
{
    char *file = fsdp_strdup(path);
    if (!file)
        return FSDP_ERR_NOMEM;
    fsdp_free(dataset->file);
    dataset->file = file;
    return FSDP_OK;
}

void fsdp_left_out_add_special(fsdp_left_out *sum, int64_t row, const char *token)
{
    if (sum->special_rows++ == 0) {
        sum->special_row = row;
        sum->special_token = token;
    }
}

void fsdp_left_out_add_unknown(fsdp_left_out *sum, int64_t row, const fsdp_unknown_in_text *found)
{
    if (found->count == 0)
        return;
    if (sum->unknown_rows++ == 0) {
        sum->unknown_row = row;
        sum->unknown_place = found->in_source && found->in_target ? "the source and the target"
                             : found->in_target                   ? "the target"
                             : found->in_source                   ? "the source"
                                                                  : NULL;
    }
    fsdp_unknown_examples_add(&sum->unknown_examples, &found->examples);
}

void fsdp_left_out_add(fsdp_left_out *sum, const fsdp_left_out *part)
{
    if (sum->special_rows == 0) {
        sum->special_row = part->special_row;
        sum->special_token = part->special_token;
        sum->special_file = part->special_file;
    }
    sum->special_rows += part->special_rows;
    if (sum->unknown_rows == 0) {
        sum->unknown_row = part->unknown_row;
        sum->unknown_place = part->unknown_place;
        sum->unknown_file = part->unknown_file;
    }
    sum->unknown_rows += part->unknown_rows;
    fsdp_unknown_examples_add(&sum->unknown_examples, &part->unknown_examples);
    sum->counted_rows += part->counted_rows;
    sum->cut_rows += part->cut_rows;
    sum->cut_tokens += part->cut_tokens;
    sum->skipped_rows += part->skipped_rows;
    sum->unused_tokens += part->unused_tokens;
}

fsdp_status fsdp_count_cut_rows(fsdp_get_cut_fn *get_cut, void *self, int64_t first, int64_t len,
                                fsdp_left_out *sum)
{
    fsdp_example example = {0};
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; i < len && status == FSDP_OK; i++) {
        const fsdp_special_in_text *special = fsdp_special_in_text_of_thread();
        const int64_t before = special->count;
        int64_t cut = 0;
        fsdp_example_empty(&example);
        fsdp_unknown_in_text unknown =
            fsdp_unknown_in_next_row(sum->unknown_rows, &sum->unknown_examples);
        fsdp_unknown_in_text *outer = fsdp_unknown_in_text_watch(&unknown);
        status = get_cut(self, first + i, &example, &cut);
        fsdp_unknown_in_text_watch(outer);
        fsdp_left_out_add_unknown(sum, first + i, &unknown);
        if (special->count > before)
            fsdp_left_out_add_special(sum, first + i, special->last);
        sum->cut_rows += cut > 0;
        sum->cut_tokens += cut;
    }
    fsdp_example_fini(&example);
    sum->counted_rows += len;
    return status;
}

fsdp_status fsdp_dataset_left_out_of(const fsdp_dataset *dataset, const fsdp_row_range *range,
                                     fsdp_left_out *out)
{
    fsdp_left_out sum = {0};
    fsdp_row_range own = *range;
    own.first += dataset->first;
    if (dataset->left_out)
        FSDP_TRY(dataset->left_out(dataset->self, &own, &sum));
    else if (dataset->get_cut)
        FSDP_TRY(fsdp_count_cut_rows(dataset->get_cut, dataset->self, own.first, own.len, &sum));
    else
        sum.counted_rows = own.len;
    if (sum.special_rows && !sum.special_file)
        sum.special_file = dataset->file;
    if (sum.unknown_rows && !sum.unknown_file)
        sum.unknown_file = dataset->file;
    *out = sum;
    return FSDP_OK;
}

fsdp_status fsdp_dataset_left_out(const fsdp_dataset *dataset, int64_t most_rows,
                                  fsdp_left_out *out)
{
    const int64_t len = most_rows > 0 && most_rows < dataset->len ? most_rows : dataset->len;
    return fsdp_dataset_left_out_of(
        dataset, &(fsdp_row_range){.first = 0, .rows = dataset->len, .len = len}, out);
}

void fsdp_dataset_close(fsdp_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->ops->close)
        dataset->ops->close(dataset->self);
    fsdp_free(dataset->file);
    fsdp_free(dataset);
}

/* ---- examples ---- */

int64_t fsdp_dataset_len(const fsdp_dataset *dataset)
{
    return dataset->len;
}

static fsdp_status check_index(const fsdp_dataset *dataset, int64_t index)
{
    if (index >= 0 && index < dataset->len)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "example %" PRId64 " of a dataset of %" PRId64, index,
                      dataset->len);
}

fsdp_status fsdp_dataset_get(const fsdp_dataset *dataset, int64_t index, fsdp_example *example)
{
    return fsdp_dataset_draw(dataset, index, &(fsdp_draw){0}, example);
}

fsdp_status fsdp_dataset_draw(const fsdp_dataset *dataset, int64_t index, const fsdp_draw *draw,
                              fsdp_example *example)
{
    const fsdp_dataset_ops *ops = dataset->ops;
    FSDP_TRY(check_index(dataset, index));
    fsdp_example_empty(example);
    index += dataset->first;
    return ops->draw ? ops->draw(dataset->self, index, draw, example)
                     : ops->get(dataset->self, index, example);
}

fsdp_status fsdp_dataset_get_cut(const fsdp_dataset *dataset, int64_t index, fsdp_example *example,
                                 int64_t *cut)
{
    *cut = 0;
    if (!dataset->get_cut)
        return fsdp_dataset_get(dataset, index, example);
    FSDP_TRY(check_index(dataset, index));
    fsdp_example_empty(example);
    return dataset->get_cut(dataset->self, dataset->first + index, example, cut);
}

fsdp_status fsdp_dataset_texts(const fsdp_dataset *dataset, int64_t index, char **source,
                               char **target)
{
    FSDP_TRY(check_index(dataset, index));
    if (!dataset->ops->texts)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "this dataset has ids only, no texts");
    char *texts[2] = {NULL, NULL};
    FSDP_TRY(dataset->ops->texts(dataset->self, dataset->first + index, &texts[0], &texts[1]));
    if (source)
        *source = texts[0];
    else
        fsdp_text_free(texts[0]);
    if (target)
        *target = texts[1];
    else
        fsdp_text_free(texts[1]);
    return FSDP_OK;
}

void fsdp_example_empty(fsdp_example *example)
{
    example->source.len = example->labels.len = 0;
    example->position_ids.len = example->token_type_ids.len = 0;
    example->num_targets = 0;
}

void fsdp_example_fini(fsdp_example *example)
{
    fsdp_token_list_fini(&example->source);
    fsdp_token_list_fini(&example->labels);
    fsdp_token_list_fini(&example->position_ids);
    fsdp_token_list_fini(&example->token_type_ids);
    fsdp_free(example->targets);
    example->targets = NULL;
    example->num_targets = example->targets_cap = 0;
}

fsdp_status fsdp_example_set_targets(fsdp_example *example, const float *targets, size_t count)
{
    if (!FSDP_GROW(example->targets, example->targets_cap, count))
        return FSDP_ERR_NOMEM;
    if (count)
        memcpy(example->targets, targets, count * sizeof *targets);
    example->num_targets = count;
    return FSDP_OK;
}
