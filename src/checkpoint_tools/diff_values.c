/* Compares two plain values, which are trees. Their depth is bounded by the pickle reader, and the
 * number of visited nodes by MAX_VISITS; see Note [Pickles that cannot hurt] in
 * src/torchfile/pickle_reader.h. */
#include <string.h>

#include <fsdp/hf.h>

#include "src/checkpoint_tools/diff_values.h"
#include "src/torchfile/torch_archive.h"

enum {
    MAX_VISITS = 1 << 30
};

typedef struct comparing {
    const fsdp_diff_value *a, *b; /* the values that are compared, with their sources */
    int64_t visits;               /* number of nodes that may still be visited */
} comparing;

static fsdp_status compare(comparing *c, const fsdp_pickle_value *a, const fsdp_pickle_value *b,
                           bool *same);

static bool same_bytes(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

static fsdp_status compare_items(comparing *c, const fsdp_pickle_value *a,
                                 const fsdp_pickle_value *b, bool *same)
{
    *same = a->list.n == b->list.n;
    for (size_t i = 0; i < a->list.n && *same; i++)
        FSDP_TRY(compare(c, a->list.items[i], b->list.items[i], same));
    return FSDP_OK;
}

/* Compare two sets. No set contains an item twice. So two sets are the same if they have the same
 * number of items and each item of `a` is in `b`. */
static fsdp_status compare_sets(comparing *c, const fsdp_pickle_value *a,
                                const fsdp_pickle_value *b, bool *same)
{
    *same = a->list.n == b->list.n;
    for (size_t i = 0; i < a->list.n && *same; i++) {
        *same = false;
        for (size_t k = 0; k < b->list.n && !*same; k++)
            FSDP_TRY(compare(c, a->list.items[i], b->list.items[(i + k) % b->list.n], same));
    }
    return FSDP_OK;
}

static bool same_name(const fsdp_pickle_name *a, const fsdp_pickle_name *b)
{
    const char *a_module = a->module ? a->module : "", *b_module = b->module ? b->module : "";
    return strcmp(a->name, b->name) == 0 && strcmp(a_module, b_module) == 0;
}

static fsdp_status compare_records(comparing *c, const fsdp_pickle_value *a,
                                   const fsdp_pickle_value *b, bool *same)
{
    *same = same_name(a->record.callee, b->record.callee) &&
            (a->record.state != NULL) == (b->record.state != NULL);
    if (*same)
        FSDP_TRY(compare(c, a->record.args, b->record.args, same));
    if (*same && a->record.state)
        FSDP_TRY(compare(c, a->record.state, b->record.state, same));
    return FSDP_OK;
}

static fsdp_status compare_tensors(const comparing *c, const fsdp_pickle_value *a,
                                   const fsdp_pickle_value *b, bool *same)
{
    fsdp_checkpoint_entry x, y;
    FSDP_TRY(fsdp_source_tensor_within(c->a->source, c->a->item, a, &x));
    FSDP_TRY(fsdp_source_tensor_within(c->b->source, c->b->item, b, &y));
    *same = strcmp(x.dtype_name, y.dtype_name) == 0 && x.ndim == y.ndim &&
            memcmp(x.shape, y.shape, (size_t)x.ndim * sizeof *x.shape) == 0 &&
            same_bytes(x.data, x.bytes, y.data, y.bytes);
    return FSDP_OK;
}

static fsdp_status compare_kind(comparing *c, const fsdp_pickle_value *a,
                                const fsdp_pickle_value *b, bool *same)
{
    switch (a->kind) {
    case FSDP_PICKLE_NONE:
        *same = true;
        return FSDP_OK;
    case FSDP_PICKLE_BOOL:
        *same = a->boolean == b->boolean;
        return FSDP_OK;
    case FSDP_PICKLE_INT:
        *same = a->integer == b->integer;
        return FSDP_OK;
    case FSDP_PICKLE_FLOAT:
        *same = same_bytes(&a->number, sizeof a->number, &b->number, sizeof b->number);
        return FSDP_OK;
    case FSDP_PICKLE_BIG_INT:
    case FSDP_PICKLE_STR:
    case FSDP_PICKLE_BYTES:
        *same = same_bytes(a->text.data, a->text.bytes, b->text.data, b->text.bytes);
        return FSDP_OK;
    case FSDP_PICKLE_DICT:
        *same = a->counts == b->counts;
        return *same ? compare_items(c, a, b, same) : FSDP_OK;
    case FSDP_PICKLE_TUPLE:
    case FSDP_PICKLE_LIST:
    case FSDP_PICKLE_PERSISTENT:
        return compare_items(c, a, b, same);
    case FSDP_PICKLE_SET:
        return compare_sets(c, a, b, same);
    /* The contents of an object are not known, so only the names of the classes are compared. */
    case FSDP_PICKLE_OPAQUE:
    case FSDP_PICKLE_NAME:
        *same = same_name(a->name, b->name);
        return FSDP_OK;
    case FSDP_PICKLE_RECORD:
        break;
    }
    return compare_records(c, a, b, same);
}

static fsdp_status compare(comparing *c, const fsdp_pickle_value *a, const fsdp_pickle_value *b,
                           bool *same)
{
    if (c->visits-- == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: the values of '%s' are nested without end",
                          fsdp_source_path(c->a->source), c->a->item->fqn);
    const bool is_tensor = fsdp_torch_is_tensor(a);
    *same = false;
    if (a->kind != b->kind || is_tensor != fsdp_torch_is_tensor(b))
        return FSDP_OK;
    return is_tensor ? compare_tensors(c, a, b, same) : compare_kind(c, a, b, same);
}

fsdp_status fsdp_diff_values(const fsdp_diff_value *a, const fsdp_diff_value *b, bool *same)
{
    comparing c = {.a = a, .b = b, .visits = MAX_VISITS};
    return compare(&c, a->value, b->value, same);
}
