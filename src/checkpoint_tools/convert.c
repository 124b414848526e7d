/* Checks the source and the target, selects items and their dtypes, and reads tensors in pieces. */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/checkpoint_tools/convert_internal.h"
#include "src/hf/stale_files.h"
#include "src/tensor/device.h"

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Count the elements that are finite in `raw` but infinite in `halves`. `raw` contains n elements
 * of the wider floating-point type `from`, whose exponent is in the last two bytes of an element,
 * and `halves` contains these elements as float16. No other target type has a range that is too
 * small for weights. */
static int64_t count_too_large(const unsigned char *halves, const unsigned char *raw,
                               const fsdp_safetensors_dtype *from, size_t n)
{
    const unsigned all = from->fsdp_dtype == (int)FSDP_DTYPE_F64 ? 0x7ff0 : 0x7f80,
                   half_all = 0x7c00;
    const size_t width = (size_t)from->bits / 8;
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t half, wide;
        memcpy(&half, halves + i * sizeof half, sizeof half);
        memcpy(&wide, raw + (i + 1) * width - sizeof wide, sizeof wide);
        count += (half & half_all) == half_all && (wide & all) != all;
    }
    return count;
}

static void take_too_large(const fsdp_converted *item, int64_t n)
{
    fsdp_conversion *run = item->run;
    if (n && !run->n_too_large)
        run->too_large = item->from->name;
    run->n_too_large += n;
}

static fsdp_status read_as(const fsdp_converted *item, uint64_t offset, void *out, size_t bytes)
{
    fsdp_conversion *run = item->run;
    const fsdp_safetensors_dtype *from =
        fsdp_safetensors_dtype_by_name(item->from->item->dtype_name);
    if (from == item->dtype)
        return fsdp_source_read(run->source, item->from->item, offset, out, bytes);
    const size_t from_width = (size_t)from->bits / 8, width = (size_t)item->dtype->bits / 8;
    const size_t most = FSDP_CONVERT_PIECE_BYTES / from_width;
    for (size_t done = 0, n; done < bytes; done += n * width) {
        n = (bytes - done) / width < most ? (bytes - done) / width : most;
        FSDP_TRY(fsdp_source_read(run->source, item->from->item,
                                  (offset + done) / width * from_width, run->raw, n * from_width));
        run->device->kernels->cast(run->device->context, (char *)out + done,
                                   (fsdp_dtype)item->dtype->fsdp_dtype, run->raw,
                                   (fsdp_dtype)from->fsdp_dtype, (int64_t)n);
        if (item->dtype->fsdp_dtype == (int)FSDP_DTYPE_F16)
            take_too_large(item, count_too_large((unsigned char *)out + done, run->raw, from, n));
    }
    return FSDP_OK;
}

fsdp_status fsdp_converted_read(const fsdp_converted *item, uint64_t offset, void *out,
                                size_t bytes)
{
    if (offset == 0)
        FSDP_TRY(fsdp_source_check(item->run->source, item->from->item));
    return read_as(item, offset, out, bytes);
}

fsdp_status fsdp_converted_stream(const fsdp_converted *item, fsdp_convert_write_fn *write,
                                  void *context)
{
    fsdp_conversion *run = item->run;
    for (int64_t at = 0, n; at < item->bytes; at += n) {
        n = item->bytes - at < FSDP_CONVERT_PIECE_BYTES ? item->bytes - at
                                                        : FSDP_CONVERT_PIECE_BYTES;
        FSDP_TRY(fsdp_converted_read(item, (uint64_t)at, run->piece, (size_t)n));
        FSDP_TRY(write(context, (uint64_t)at, run->piece, (size_t)n));
    }
    fsdp_conversion_step(run);
    return FSDP_OK;
}

static void report_progress(const fsdp_conversion *run)
{
    if (run->options->progress)
        run->options->progress(run->options->context, run->done, run->selection.n);
}

void fsdp_conversion_step(fsdp_conversion *run)
{
    run->done++;
    report_progress(run);
}

/* ---- items ----------------------------------------------------------------------------------- */

static bool is_model_alone(const fsdp_conversion *run)
{
    return run->options->model_only || run->result->format == FSDP_CONVERT_SAFETENSORS ||
           run->result->format == FSDP_CONVERT_HF;
}

static fsdp_status refuse_twice(const fsdp_conversion *run, const fsdp_selected *a,
                                const fsdp_selected *b)
{
    const char *path = fsdp_source_path(run->source);
    if (strcmp(a->item->fqn, b->item->fqn) == 0)
        return fsdp_error(FSDP_ERR_INVALID, "%s: two items have the name '%s'", path, a->name);
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: two items have the name '%s', '%s' and '%s': save the one that is meant "
                      "alone, in torch",
                      path, a->name, a->item->fqn, b->item->fqn);
}

/* Check that names are distinct: two items with the same name would become one item when they are
 * loaded. */
static fsdp_status check_names(const fsdp_conversion *run)
{
    fsdp_selection sorted = {.n = run->selection.n};
    sorted.items = fsdp_calloc(sorted.n, sizeof *sorted.items);
    if (!sorted.items)
        return FSDP_ERR_NOMEM;
    memcpy(sorted.items, run->selection.items, sorted.n * sizeof *sorted.items);
    fsdp_selection_sort(&sorted);
    fsdp_status status = FSDP_OK;
    for (size_t i = 1; i < sorted.n && status == FSDP_OK; i++)
        if (strcmp(sorted.items[i - 1].name, sorted.items[i].name) == 0)
            status = refuse_twice(run, &sorted.items[i - 1], &sorted.items[i]);
    fsdp_free(sorted.items);
    return status;
}

static void set_dtype(fsdp_converted *to, const fsdp_safetensors_dtype *dtype)
{
    to->dtype = dtype;
    to->bytes = to->from->item->numel * dtype->bits / 8;
}

/* Is this a floating-point type of 8 bits or fewer? No kernel reads these types. The values of
 * their elements depend on scales in other tensors, which differ between methods of
 * quantization. */
static bool is_small_float(const fsdp_safetensors_dtype *dtype)
{
    return dtype->fsdp_dtype < 0 && dtype->name[0] == 'F';
}

/* Report `note` and free it. NULL means that memory ran out. */
static fsdp_status report_note(const fsdp_conversion *run, char *note)
{
    if (!note)
        return FSDP_ERR_NOMEM;
    if (run->options->note)
        run->options->note(note, run->options->context);
    fsdp_free(note);
    return FSDP_OK;
}

static fsdp_status note_kept(const fsdp_conversion *run, size_t n, const fsdp_converted *first)
{
    if (n == 0)
        return FSDP_OK;
    char *note = fsdp_strdup_printf("%zu tensor%s as %s, '%s' of %s%s: types of 8 bits and fewer "
                                    "are not converted",
                                    n, n == 1 ? " stays" : "s stay", n == 1 ? "it is" : "they are",
                                    first->from->name, first->dtype->name,
                                    n == 1 ? "" : " the first of them");
    return report_note(run, note);
}

/* Add a note if tensors below other keys are left out because no key leads to a model. The tensors
 * at the top were then selected as the model, but the model may be below one of these keys. */
static fsdp_status note_left_out(const fsdp_conversion *run)
{
    const fsdp_source_item *first = NULL;
    size_t n = 0;
    if (!is_model_alone(run) || *run->selection.prefix)
        return FSDP_OK;
    for (size_t i = fsdp_source_count(run->source); i-- > 0;) {
        const fsdp_source_item *item = fsdp_source_at(run->source, i);
        if (!item->dtype_name || item->n_keys == 1)
            continue;
        first = item;
        n++;
    }
    if (n == 0)
        return FSDP_OK;
    return report_note(
        run, fsdp_strdup_printf("the model is what is at the top; %zu tensor%s left out, '%s'%s", n,
                                n == 1 ? " below another key is" : "s below other keys are",
                                first->fqn, n == 1 ? "" : " the first of them"));
}

/* Find an object in a plain value: an instance of a class, which is not read. *object is NULL if
 * there is none. */
static fsdp_status find_object(const fsdp_conversion *run, const fsdp_source_item *item,
                               const fsdp_pickle_value **object)
{
    const fsdp_pickle_value *value = NULL;
    if (!item->dtype_name)
        FSDP_TRY(fsdp_source_value(run->source, item, &value));
    *object = fsdp_pickle_find_opaque(value);
    return FSDP_OK;
}

/* Would `item` be written if its value could be read? */
static bool is_within_selection(const fsdp_conversion *run, const fsdp_source_item *item)
{
    const char *prefix = run->selection.prefix ? run->selection.prefix : "";
    const size_t n = strlen(prefix);
    if (!is_model_alone(run))
        return true;
    return n ? strncmp(item->fqn, prefix, n) == 0 && item->fqn[n] == '.' : item->n_keys == 1;
}

/* Report values that are left out because they are, or contain, objects of classes, which are not
 * read. */
static fsdp_status note_objects(const fsdp_conversion *run)
{
    char *first = NULL, what[128];
    size_t n = 0;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_source_count(run->source) && status == FSDP_OK; i++) {
        const fsdp_source_item *item = fsdp_source_at(run->source, i);
        const fsdp_pickle_value *object = NULL;
        if (is_within_selection(run, item))
            status = find_object(run, item, &object);
        if (object && n++ == 0)
            first = fsdp_strdup_printf("'%s', %s", item->fqn,
                                       fsdp_pickle_describe(object, what, sizeof what));
    }
    if (status == FSDP_OK && n)
        status = report_note(
            run, fsdp_strdup_printf("%zu value%s left out because objects of classes are not read: "
                                    "%s%s",
                                    n, n == 1 ? " is" : "s are", first ? first : "",
                                    n == 1 ? "" : ", and others"));
    fsdp_free(first);
    return status;
}

static fsdp_status leave_out_objects(fsdp_conversion *run)
{
    fsdp_selection *s = &run->selection;
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        const fsdp_pickle_value *object;
        FSDP_TRY(find_object(run, s->items[i].item, &object));
        if (!object)
            s->items[kept++] = s->items[i];
    }
    s->n = kept;
    return note_objects(run);
}

static fsdp_status note_too_large(const fsdp_conversion *run)
{
    const long long n = run->n_too_large;
    if (n == 0)
        return FSDP_OK;
    return report_note(run, fsdp_strdup_printf("%lld element%s too large for float16 and became "
                                               "infinite, %s'%s'",
                                               n, n == 1 ? " is" : "s are",
                                               n == 1 ? "of " : "the first of them of ",
                                               run->too_large));
}

/* Convert the dtype of the model's tensors only: an optimizer with bfloat16 moments would be a
 * different optimizer. */
static fsdp_status change_dtypes(fsdp_conversion *run)
{
    fsdp_selection model;
    const fsdp_converted *kept = NULL;
    size_t n_kept = 0;
    FSDP_TRY(fsdp_select_model(run->source, &model));
    for (size_t i = 0, k = 0; i < run->selection.n && k < model.n; i++) {
        fsdp_converted *to = &run->items[i];
        if (to->from->item != model.items[k].item)
            continue; /* both selections are in the order of the source */
        k++;
        if (to->dtype->fsdp_dtype >= 0 && fsdp_dtype_is_floating((fsdp_dtype)to->dtype->fsdp_dtype))
            set_dtype(to, fsdp_safetensors_dtype_of(run->options->dtype));
        else if (is_small_float(to->dtype) && n_kept++ == 0)
            kept = to;
    }
    fsdp_selection_fini(&model);
    return note_kept(run, n_kept, kept);
}

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const void *const *)a,
                    y = (uintptr_t) * (const void *const *)b;
    return (x > y) - (x < y);
}

static bool has_place(const fsdp_conversion *run, const fsdp_source_item *item)
{
    const fsdp_convert_options *o = run->options;
    return !o->used ||
           bsearch(&item, o->used, o->n_used, sizeof(const fsdp_source_item *), by_address);
}

static fsdp_status note_dropped(const fsdp_conversion *run, size_t n, const char *first,
                                const char *why)
{
    if (n == 0)
        return FSDP_OK;
    return report_note(run, fsdp_strdup_printf("%zu tensor%s left out, '%s'%s: %s", n,
                                               n == 1 ? " is" : "s are", first,
                                               n == 1 ? "" : " the first of them", why));
}

/* Remove two kinds of tensors from the selection: the state of an optimizer that is stored flat
 * next to the model, and tensors that are not in options->used. The selection stays in the order of
 * the source. */
static fsdp_status drop_others(fsdp_conversion *run)
{
    fsdp_selection *s = &run->selection, sorted = {.n = s->n};
    const char *state = NULL, *unused = NULL;
    size_t kept = 0, n_state = 0, n_unused = 0;
    sorted.items = fsdp_calloc(s->n, sizeof *sorted.items);
    if (!sorted.items)
        return FSDP_ERR_NOMEM;
    memcpy(sorted.items, s->items, s->n * sizeof *s->items);
    fsdp_selection_sort(&sorted);
    for (size_t i = 0; i < s->n; i++) {
        const char *name = s->items[i].name;
        if (fsdp_selection_is_flat_optimizer(&sorted, name))
            state = n_state++ ? state : name;
        else if (!has_place(run, s->items[i].item))
            unused = n_unused++ ? unused : name;
        else
            s->items[kept++] = s->items[i];
    }
    s->n = kept;
    fsdp_free(sorted.items);
    FSDP_TRY(note_dropped(run, n_state, state, "the state of an optimizer"));
    return note_dropped(
        run, n_unused, unused,
        "the model of --model has no use for them; without --model all are written");
}

static void count_items(fsdp_conversion *run)
{
    for (size_t i = 0; i < run->selection.n; i++) {
        run->result->tensors += run->items[i].dtype != NULL;
        run->result->values += run->items[i].dtype == NULL;
        run->result->bytes += run->items[i].bytes;
    }
}

static fsdp_status select_items(fsdp_conversion *run)
{
    FSDP_TRY(is_model_alone(run) ? fsdp_select_model(run->source, &run->selection)
                                 : fsdp_select_all(run->source, &run->selection));
    FSDP_TRY(leave_out_objects(run));
    if (run->options->names)
        FSDP_TRY(fsdp_selection_change(&run->selection, run->options->names));
    FSDP_TRY(check_names(run));
    FSDP_TRY(note_left_out(run));
    if (is_model_alone(run))
        FSDP_TRY(drop_others(run));
    run->items = fsdp_calloc(run->selection.n, sizeof *run->items);
    if (!run->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < run->selection.n; i++) {
        const fsdp_selected *from = &run->selection.items[i];
        run->items[i] = (fsdp_converted){.run = run, .from = from};
        if (from->item->dtype_name)
            set_dtype(&run->items[i], fsdp_safetensors_dtype_by_name(from->item->dtype_name));
    }
    if (run->options->has_dtype)
        FSDP_TRY(change_dtypes(run));
    FSDP_TRY(fsdp_source_is_sparse(run->source, &run->is_sparse));
    count_items(run);
    return FSDP_OK;
}

/* ---- the target ------------------------------------------------------------------------------ */

fsdp_convert_format fsdp_convert_format_of(const fsdp_source *from, const char *to,
                                           fsdp_convert_format wanted)
{
    if (wanted != FSDP_CONVERT_AUTO)
        return wanted;
    if (fsdp_ends_with(to, ".pt") || fsdp_ends_with(to, ".pth") || fsdp_ends_with(to, ".bin"))
        return FSDP_CONVERT_TORCH;
    if (fsdp_ends_with(to, ".safetensors"))
        return FSDP_CONVERT_SAFETENSORS;
    return fsdp_source_format_of(from) == FSDP_SOURCE_TORCH ? FSDP_CONVERT_DCP : FSDP_CONVERT_HF;
}

static bool is_within(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Check that an existing target is not the source, does not contain the source, and is not a part
 * of the source. */
static fsdp_status check_apart(const fsdp_source *source, const char *to)
{
    const char *path = fsdp_source_path(source);
    char from[PATH_MAX], target[PATH_MAX];
    if (!realpath(path, from) || !realpath(to, target))
        return FSDP_OK; /* the target does not exist */
    if (is_within(from, target))
        return fsdp_error(FSDP_ERR_INVALID, "%s: it is, or holds, what is converted: %s", to, path);
    if (is_within(target, from) || fsdp_source_has_file(source, target))
        return fsdp_error(FSDP_ERR_INVALID, "%s: it is a part of what is converted: %s", to, path);
    return FSDP_OK;
}

static bool is_checkpoint_file(const char *name)
{
    return strcmp(name, ".metadata") == 0 || fsdp_ends_with(name, ".distcp") ||
           fsdp_ends_with(name, ".safetensors") || strncmp(name, "pytorch_model", 13) == 0;
}

/* Check that the folder that will be replaced is empty or contains a model or a checkpoint. */
static fsdp_status check_directory(const char *to)
{
    char **names;
    size_t count;
    FSDP_TRY(fsdp_directory_list(to, &names, &count));
    bool is = count == 0;
    for (size_t i = 0; i < count && !is; i++)
        is = is_checkpoint_file(names[i]);
    fsdp_free(names);
    if (!is)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: a directory that holds no checkpoint is not "
                          "replaced",
                          to);
    return FSDP_OK;
}

static fsdp_status check_file(const fsdp_conversion *run)
{
    if (fsdp_path_is_directory(run->to))
        return fsdp_error(FSDP_ERR_INVALID, "%s: a directory is there", run->to);
    if (fsdp_path_is_file(run->to) && !run->options->overwrite)
        return fsdp_error(FSDP_ERR_INVALID, "%s: it exists, and would be overwritten", run->to);
    return FSDP_OK;
}

static fsdp_status check_target(const fsdp_conversion *run)
{
    FSDP_TRY(check_apart(run->source, run->to));
    if (run->result->format == FSDP_CONVERT_TORCH ||
        run->result->format == FSDP_CONVERT_SAFETENSORS)
        return check_file(run);
    if (run->options->overwrite && fsdp_path_is_directory(run->to)) {
        FSDP_TRY(check_directory(run->to));
        FSDP_TRY(fsdp_check_model_place(run->to));
    }
    return fsdp_atomic_directory_check(run->to, run->options->overwrite ? FSDP_EXISTING_UPDATE
                                                                        : FSDP_EXISTING_REFUSE);
}

bool fsdp_conversion_drops(void *context, const char *old, const char *fresh, const char *name)
{
    fsdp_conversion *run = context;
    if (!fsdp_is_stale_model_file(NULL, old, fresh, name))
        return false;
    char *path = fsdp_path_join(fresh, name), *quoted = fsdp_strdup_printf("'%s'", name);
    const bool is_known = run->replaced.data && quoted && strstr(run->replaced.data, quoted);
    if (path && quoted && !fsdp_path_is_file(path) && !is_known)
        fsdp_str_printf(&run->replaced, "%s%s", run->replaced.len ? ", " : "", quoted);
    fsdp_free(path);
    fsdp_free(quoted);
    return true;
}

static fsdp_status note_replaced(const fsdp_conversion *run)
{
    if (!run->replaced.len || run->replaced.failed)
        return FSDP_OK;
    return report_note(run, fsdp_strdup_printf("removed with the model that was in %s: %s", run->to,
                                               run->replaced.data));
}

/* ---- converting ------------------------------------------------------------------------------ */

static fsdp_status write_target(fsdp_conversion *run)
{
    switch (run->result->format) {
    case FSDP_CONVERT_TORCH:
        return fsdp_convert_to_torch(run);
    case FSDP_CONVERT_SAFETENSORS:
        return fsdp_convert_to_safetensors(run);
    case FSDP_CONVERT_DCP:
        return fsdp_convert_to_dcp(run);
    default:
        return fsdp_convert_to_hf(run);
    }
}

static fsdp_status convert(fsdp_conversion *run)
{
    run->result->format = fsdp_convert_format_of(run->source, run->to, run->options->format);
    FSDP_TRY(check_target(run));
    FSDP_TRY(select_items(run));
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &run->device));
    run->raw = fsdp_calloc(1, FSDP_CONVERT_PIECE_BYTES);
    run->piece = fsdp_calloc(1, FSDP_CONVERT_PIECE_BYTES);
    if (!run->raw || !run->piece)
        return FSDP_ERR_NOMEM;
    report_progress(run);
    FSDP_TRY(write_target(run));
    FSDP_TRY(note_replaced(run));
    return note_too_large(run);
}

fsdp_status fsdp_convert(fsdp_source *from, const char *to, const fsdp_convert_options *options,
                         fsdp_convert_result *result)
{
    fsdp_conversion run = {.source = from, .to = to, .options = options, .result = result};
    *result = (fsdp_convert_result){0};
    fsdp_status status = convert(&run);
    fsdp_device_destroy(run.device);
    fsdp_selection_fini(&run.selection);
    fsdp_free(run.items);
    fsdp_free(run.raw);
    fsdp_free(run.piece);
    fsdp_str_fini(&run.replaced);
    return status;
}
