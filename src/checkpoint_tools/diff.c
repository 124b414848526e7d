/* Compares two checkpoints, A and B. Selects the items of each, sorts them by name, and compares
 * items of the same name. Elements are read in pieces, so memory use is bounded. */
#include <math.h>
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/alloc.h"
#include "src/checkpoint_tools/diff.h"
#include "src/checkpoint_tools/diff_values.h"
#include "src/tensor/device.h"
#include "src/torchfile/safetensors_dtype.h"

enum {
    PIECE_ELEMENTS = 1 << 18,
    MAX_ELEMENT_BYTES = 8,
    REPORTED_VALUE_BYTES = 1 << 20
};

typedef struct side {
    fsdp_source *source;
    fsdp_selection selection;
    unsigned char *raw; /* [PIECE_ELEMENTS * MAX_ELEMENT_BYTES] a piece of a tensor, in its dtype */
    double *numbers;    /* [PIECE_ELEMENTS] the same piece, as doubles */
} side;

typedef struct diff {
    const fsdp_diff_options *options;
    side a, b;
    fsdp_device *device; /* the CPU device; its kernels convert elements to double */
    fsdp_difference_fn *on_difference;
    void *context;
    fsdp_diff_result *result;
} diff;

static fsdp_status report_difference(diff *d, const fsdp_difference *difference)
{
    d->result->differences++;
    return d->on_difference(difference, d->context);
}

/* ---- elements -------------------------------------------------------------------------------- */

static const fsdp_safetensors_dtype *dtype_of(const fsdp_source_item *item)
{
    return fsdp_safetensors_dtype_by_name(item->dtype_name);
}

static bool is_number(const fsdp_source_item *item)
{
    return dtype_of(item)->fsdp_dtype >= 0;
}

/* Return the number of bytes that are compared at a time. This is the size of an element, or 1 if
 * elements have fewer than 8 bits and a byte contains several of them. */
static size_t width_of(const fsdp_source_item *item)
{
    const int bits = dtype_of(item)->bits;
    return bits < 8 ? 1 : (size_t)bits / 8;
}

static fsdp_status read_piece(side *s, const fsdp_source_item *item, int64_t begin, int64_t n)
{
    const size_t width = width_of(item);
    return fsdp_source_read(s->source, item, (uint64_t)begin * width, s->raw, (size_t)n * width);
}

static void to_numbers(const diff *d, side *s, const fsdp_source_item *item, int64_t n)
{
    d->device->kernels->cast(d->device->context, s->numbers, FSDP_DTYPE_F64, s->raw,
                             (fsdp_dtype)dtype_of(item)->fsdp_dtype, n);
}

static double distance(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    return isnan(a) || isnan(b) ? (double)INFINITY : fabs(a - b);
}

/* Return true if elements are compared by their bits, and false if they are compared by their
 * values. Bits are compared if both tensors have the same dtype and the user gave no tolerance.
 * Elements with equal values may have different bits: 0.0 and -0.0 do, and so do two large integers
 * that become the same double. */
static bool compares_bits(const diff *d, const fsdp_difference *at)
{
    return !d->options->has_tolerance && strcmp(at->a->dtype_name, at->b->dtype_name) == 0;
}

static void compare_numbers(diff *d, int64_t n, fsdp_difference *at)
{
    const bool bits = compares_bits(d, at);
    const size_t width = width_of(at->a);
    to_numbers(d, &d->a, at->a, n);
    to_numbers(d, &d->b, at->b, n);
    for (int64_t i = 0; i < n; i++) {
        double far = distance(d->a.numbers[i], d->b.numbers[i]);
        at->n_different +=
            bits ? memcmp(d->a.raw + (size_t)i * width, d->b.raw + (size_t)i * width, width) != 0
                 : far > d->options->tolerance;
        at->largest = far > at->largest ? far : at->largest;
    }
}

/* Compare elements of types that are not converted to numbers, such as bool and 8-bit floats. */
static void compare_bytes(diff *d, int64_t n, fsdp_difference *at)
{
    const size_t width = width_of(at->a);
    at->largest = (double)NAN;
    for (int64_t i = 0; i < n; i++)
        at->n_different +=
            memcmp(d->a.raw + (size_t)i * width, d->b.raw + (size_t)i * width, width) != 0;
}

static fsdp_status compare_elements(diff *d, fsdp_difference *at)
{
    const bool same_dtype = strcmp(at->a->dtype_name, at->b->dtype_name) == 0;
    const bool numbers = is_number(at->a) && is_number(at->b);
    if (!numbers && !same_dtype) {
        at->n_different = at->a->numel;
        at->largest = (double)NAN;
        return FSDP_OK;
    }
    const size_t width = width_of(at->a);
    const int64_t count = at->a->bytes / (int64_t)width;
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < PIECE_ELEMENTS ? count - i : PIECE_ELEMENTS;
        FSDP_TRY(read_piece(&d->a, at->a, i, n));
        FSDP_TRY(read_piece(&d->b, at->b, i, n));
        if (same_dtype && memcmp(d->a.raw, d->b.raw, (size_t)n * width) == 0)
            continue;
        if (numbers)
            compare_numbers(d, n, at);
        else
            compare_bytes(d, n, at);
    }
    return FSDP_OK;
}

/* ---- items ----------------------------------------------------------------------------------- */

static bool same_shape(const fsdp_source_item *a, const fsdp_source_item *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static fsdp_status compare_tensors(diff *d, fsdp_difference *at)
{
    if (!same_shape(at->a, at->b)) {
        at->kind = FSDP_DIFFERENCE_SHAPE;
        return report_difference(d, at);
    }
    FSDP_TRY(compare_elements(d, at));
    bool other_dtype = strcmp(at->a->dtype_name, at->b->dtype_name) != 0;
    if (other_dtype && !d->options->ignore_dtype)
        at->kind = FSDP_DIFFERENCE_DTYPE;
    else if (at->n_different)
        at->kind = FSDP_DIFFERENCE_ELEMENTS;
    else
        return FSDP_OK;
    return report_difference(d, at);
}

/* Report that the plain values `a` and `b` differ. Their texts in the report may be equal: long
 * texts are truncated, and the elements of tensors are not shown. */
static fsdp_status report_values(diff *d, fsdp_difference *at, const fsdp_pickle_value *a,
                                 const fsdp_pickle_value *b)
{
    fsdp_str a_text = {0}, b_text = {0};
    fsdp_source_repr(a, REPORTED_VALUE_BYTES, &a_text);
    fsdp_source_repr(b, REPORTED_VALUE_BYTES, &b_text);
    at->kind = FSDP_DIFFERENCE_VALUE;
    at->value_a = a_text.data;
    at->value_b = b_text.data;
    fsdp_status status =
        a_text.failed || b_text.failed ? fsdp_error_nomem() : report_difference(d, at);
    fsdp_str_fini(&a_text);
    fsdp_str_fini(&b_text);
    return status;
}

static fsdp_status compare_values(diff *d, fsdp_difference *at)
{
    fsdp_diff_value a = {.source = d->a.source, .item = at->a};
    fsdp_diff_value b = {.source = d->b.source, .item = at->b};
    bool same;
    FSDP_TRY(fsdp_source_value(a.source, a.item, &a.value));
    FSDP_TRY(fsdp_source_value(b.source, b.item, &b.value));
    FSDP_TRY(fsdp_diff_values(&a, &b, &same));
    /* The classes of the objects are the same, but the contents of the objects were not read. */
    if (same && a.value->opaque) {
        d->result->compared--;
        d->result->unread++;
    }
    return same ? FSDP_OK : report_values(d, at, a.value, b.value);
}

static fsdp_status compare_items(diff *d, fsdp_difference *at)
{
    d->result->compared++;
    if (at->a->dtype_name && at->b->dtype_name)
        return compare_tensors(d, at);
    if (!at->a->dtype_name && !at->b->dtype_name)
        return compare_values(d, at);
    at->kind = FSDP_DIFFERENCE_KIND;
    return report_difference(d, at);
}

/* ---- comparing the selections ---------------------------------------------------------------- */

/* A position in the two sorted selections: an index into A's and an index into B's. */
typedef struct place {
    size_t i, k; /* index of the next item of A (i) and of B (k) */
} place;

/* Compare the next name of A with the next name of B. Return a number < 0 if A's name comes first,
 * > 0 if B's name comes first, and 0 if the names are equal. If only one of A and B has a next
 * name, that name comes first. */
static int order_at(const diff *d, place at)
{
    const fsdp_selection *a = &d->a.selection, *b = &d->b.selection;
    return at.i == a->n ? 1 : at.k == b->n ? -1 : strcmp(a->items[at.i].name, b->items[at.k].name);
}

static bool is_end(const diff *d, place at)
{
    return at.i == d->a.selection.n && at.k == d->b.selection.n;
}

static place next_place(place at, int order)
{
    return (place){at.i + (order <= 0), at.k + (order >= 0)};
}

static size_t count_names(const diff *d)
{
    size_t n = 0;
    for (place at = {0}; !is_end(d, at); at = next_place(at, order_at(d, at)))
        n++;
    return n;
}

static fsdp_status compare_at(diff *d, place where, int order)
{
    const fsdp_selected *a = order <= 0 ? &d->a.selection.items[where.i] : NULL;
    const fsdp_selected *b = order >= 0 ? &d->b.selection.items[where.k] : NULL;
    fsdp_difference at = {
        .name = a ? a->name : b->name, .a = a ? a->item : NULL, .b = b ? b->item : NULL};
    if (a && b)
        return compare_items(d, &at);
    at.kind = a ? FSDP_DIFFERENCE_ONLY_IN_A : FSDP_DIFFERENCE_ONLY_IN_B;
    return report_difference(d, &at);
}

static void report_progress(const diff *d, size_t done, size_t total)
{
    if (d->options->progress)
        d->options->progress(d->context, done, total);
}

static fsdp_status compare_all(diff *d)
{
    const size_t total = count_names(d);
    size_t done = 0;
    report_progress(d, done, total);
    for (place at = {0}; !is_end(d, at);) {
        const int order = order_at(d, at);
        FSDP_TRY(compare_at(d, at, order));
        at = next_place(at, order);
        report_progress(d, ++done, total);
    }
    return FSDP_OK;
}

/* Select the items to compare. Only the models' tensors are selected if one of two conditions is
 * true: options->model_only is true, or the models in A and B are below different keys. In the
 * second case, one of the models may be at the top of its checkpoint, below no key. If neither
 * condition is true, all items are selected. */
static fsdp_status select_items(diff *d)
{
    fsdp_selection *a = &d->a.selection, *b = &d->b.selection;
    bool both = fsdp_select_model(d->a.source, a) == FSDP_OK;
    both = fsdp_select_model(d->b.source, b) == FSDP_OK && both;
    if (both && (d->options->model_only || strcmp(a->prefix, b->prefix) != 0)) {
        d->result->model_only = true;
        return FSDP_OK;
    }
    fsdp_selection_fini(a);
    fsdp_selection_fini(b);
    if (d->options->model_only) { /* one of the calls above failed: call both again to get its
                                     error */
        FSDP_TRY(fsdp_select_model(d->a.source, a));
        return fsdp_select_model(d->b.source, b);
    }
    FSDP_TRY(fsdp_select_all(d->a.source, a));
    return fsdp_select_all(d->b.source, b);
}

/* Return true if a wrapper may have added prefix [n] to the name of `item`. The name consists of
 * keys, joined by dots. A wrapper adds the prefix to the first key. So return true if the first key
 * consists of the prefix and at least one more character. With the prefix "model.", for example,
 * the result is true for the single key "model.weight". It is false for the two keys "model" and
 * "weight", although joining them gives the same name. */
static bool begins_key(const fsdp_selected *item, const char *prefix, size_t n)
{
    const char *key = item->keys[0].name;
    return key && strncmp(key, prefix, n) == 0 && key[n];
}

/* Find the one prefix that turns each name in `shorter` into the name at the same index in
 * `longer`. Set change->prefix to this prefix, or to "" if there is none. Both selections must be
 * sorted. */
static void find_prefix(const fsdp_selection *longer, const fsdp_selection *shorter,
                        fsdp_name_change *change)
{
    *change = (fsdp_name_change){0};
    if (longer->n == 0 || shorter->n != longer->n)
        return;
    const char *name = longer->items[0].name, *rest = shorter->items[0].name;
    const size_t all = strlen(name), n = strlen(rest);
    if (all <= n || all - n >= sizeof change->prefix || name[all - n - 1] != '.' ||
        strcmp(name + all - n, rest) != 0)
        return;
    for (size_t i = 0; i < longer->n; i++)
        if (!begins_key(&longer->items[i], name, all - n) ||
            strcmp(longer->items[i].name + all - n, shorter->items[i].name) != 0)
            return;
    memcpy(change->prefix, name, all - n);
}

/* One selection may have the same names as the other, but with a prefix before each name. In this
 * case, remove the prefix. A LightningModule, for example, adds such a prefix to the names of a
 * model. Both selections must be sorted. */
static fsdp_status drop_prefix(diff *d)
{
    fsdp_selection *a = &d->a.selection, *b = &d->b.selection;
    find_prefix(a, b, &d->result->of_a);
    find_prefix(b, a, &d->result->of_b);
    if (*d->result->of_a.prefix)
        FSDP_TRY(fsdp_selection_change(a, &d->result->of_a));
    return *d->result->of_b.prefix ? fsdp_selection_change(b, &d->result->of_b) : FSDP_OK;
}

static fsdp_status begin_side(side *s, fsdp_source *source)
{
    s->source = source;
    s->raw = fsdp_calloc(PIECE_ELEMENTS, MAX_ELEMENT_BYTES);
    s->numbers = fsdp_calloc(PIECE_ELEMENTS, sizeof *s->numbers);
    return s->raw && s->numbers ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void end_side(side *s)
{
    fsdp_selection_fini(&s->selection);
    fsdp_free(s->raw);
    fsdp_free(s->numbers);
}

fsdp_status fsdp_diff(fsdp_source *a, fsdp_source *b, const fsdp_diff_options *options,
                      fsdp_difference_fn *on_difference, void *context, fsdp_diff_result *result)
{
    diff d = {
        .options = options, .on_difference = on_difference, .context = context, .result = result};
    *result = (fsdp_diff_result){0};
    fsdp_status status = begin_side(&d.a, a);
    if (status == FSDP_OK)
        status = begin_side(&d.b, b);
    if (status == FSDP_OK)
        status = fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &d.device);
    if (status == FSDP_OK)
        status = select_items(&d);
    if (status == FSDP_OK) {
        fsdp_selection_sort(&d.a.selection);
        fsdp_selection_sort(&d.b.selection);
        status = drop_prefix(&d);
    }
    if (status == FSDP_OK && result->model_only)
        status = fsdp_selection_drop_flat_optimizer(&d.a.selection);
    if (status == FSDP_OK && result->model_only)
        status = fsdp_selection_drop_flat_optimizer(&d.b.selection);
    if (status == FSDP_OK)
        status = compare_all(&d);
    fsdp_device_destroy(d.device);
    end_side(&d.a);
    end_side(&d.b);
    return status;
}
