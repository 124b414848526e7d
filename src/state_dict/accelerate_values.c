/* Reads and writes the small files of Accelerate's folders: scheduler.bin contains
 * LambdaLR.state_dict(), and scaler.pt contains GradScaler.state_dict(). These dicts have plain
 * values only. */
#include "src/base/assert.h"
#include "src/state_dict/accelerate.h"

enum {
    MAX_GROUPS = 64 /* maximum number of parameter groups of an optimizer that has a scheduler */
};

/* --- reading and writing values of a dict --- */

static fsdp_status put_value(fsdp_state_dict *dict, const char *name, fsdp_plain value)
{
    const fsdp_state_key key = {.name = name};
    return fsdp_state_dict_put_value(dict, &key, 1, &value);
}

/* Set *number to the number that the dict has under the key `name`. If the dict has a list there,
 * set *number to the first element of the list. The error message contains `path`. */
static fsdp_status get_number(const fsdp_state_dict *dict, const char *path, const char *name,
                              double *number)
{
    const fsdp_state_entry *entry = fsdp_state_dict_find(dict, name);
    const fsdp_plain *value = entry ? entry->value : NULL;
    if (value && value->kind == FSDP_PLAIN_LIST && value->as.list.n)
        value = &value->as.list.items[0];
    if (value && value->kind == FSDP_PLAIN_FLOAT)
        *number = value->as.number;
    else if (value && value->kind == FSDP_PLAIN_INT)
        *number = (double)value->as.integer;
    else
        return fsdp_error(FSDP_ERR_FORMAT, "%s: there is no number '%s'", path, name);
    return FSDP_OK;
}

/* Load the file `path`; the caller owns *dict. */
static fsdp_status load(const char *path, fsdp_state_dict **dict)
{
    fsdp_device *device;
    FSDP_TRY(fsdp_device_create(NULL, &device));
    fsdp_status status = fsdp_torch_load(path, device, dict);
    fsdp_device_destroy(device);
    return status;
}

/* --- schedulers --- */

/* Put a list into the dict. The list contains `value` n times, once for each parameter group. */
static fsdp_status put_list(fsdp_state_dict *dict, const char *name, int n, fsdp_plain value)
{
    fsdp_plain items[MAX_GROUPS];
    for (int i = 0; i < n; i++)
        items[i] = value;
    return put_value(dict, name,
                     (fsdp_plain){.kind = FSDP_PLAIN_LIST, .as.list = {items, (size_t)n}});
}

/* Put the items of LambdaLR.state_dict() into the dict, for n parameter groups. */
static fsdp_status put_scheduler(fsdp_state_dict *dict, const fsdp_accelerate_scheduler *s, int n)
{
    const fsdp_plain no = {.kind = FSDP_PLAIN_BOOL};
    if (n > MAX_GROUPS)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a scheduler for %d parameter groups", n);
    FSDP_TRY(put_list(dict, "base_lrs", n,
                      (fsdp_plain){.kind = FSDP_PLAIN_FLOAT, .as.number = s->base_lr}));
    FSDP_TRY(put_value(dict, "last_epoch",
                       (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = s->last_epoch}));
    FSDP_TRY(put_value(dict, "_step_count",
                       (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = s->last_epoch + 1}));
    FSDP_TRY(put_value(dict, "_is_initial", no));
    FSDP_TRY(put_value(dict, "_get_lr_called_within_step", no));
    FSDP_TRY(put_list(dict, "_last_lr", n,
                      (fsdp_plain){.kind = FSDP_PLAIN_FLOAT, .as.number = s->last_lr}));
    return put_list(dict, "lr_lambdas", n, (fsdp_plain){.kind = FSDP_PLAIN_NONE});
}

fsdp_status fsdp_accelerate_scheduler_write(const fsdp_accelerate_scheduler *scheduler,
                                            int n_groups, const char *path)
{
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_state_dict_create(&dict));
    fsdp_status status = put_scheduler(dict, scheduler, n_groups);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    return status;
}

static fsdp_status take_scheduler(const fsdp_state_dict *dict, const char *path,
                                  fsdp_accelerate_scheduler *out)
{
    fsdp_accelerate_scheduler s;
    double epoch;
    FSDP_TRY(get_number(dict, path, "base_lrs", &s.base_lr));
    FSDP_TRY(get_number(dict, path, "_last_lr", &s.last_lr));
    FSDP_TRY(get_number(dict, path, "last_epoch", &epoch));
    if (!(epoch >= -1.0 && epoch < 9e15))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: last_epoch is %g", path, epoch);
    s.last_epoch = (int64_t)epoch;
    *out = s;
    return FSDP_OK;
}

fsdp_status fsdp_accelerate_scheduler_read(const char *path, fsdp_accelerate_scheduler *scheduler)
{
    fsdp_state_dict *dict;
    FSDP_TRY(load(path, &dict));
    fsdp_status status = take_scheduler(dict, path, scheduler);
    fsdp_state_dict_destroy(dict);
    return status;
}

/* --- the gradient scaler --- */

static fsdp_status put_scaler(fsdp_state_dict *dict, const fsdp_grad_scaler_state *s)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"scale", s->scale},
                   {"growth_factor", s->growth_factor},
                   {"backoff_factor", s->backoff_factor}};
    for (size_t i = 0; i < FSDP_LENGTH(numbers); i++)
        FSDP_TRY(put_value(dict, numbers[i].name,
                           (fsdp_plain){.kind = FSDP_PLAIN_FLOAT, .as.number = numbers[i].value}));
    FSDP_TRY(put_value(dict, "growth_interval",
                       (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = s->growth_interval}));
    return put_value(dict, "_growth_tracker",
                     (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = s->growth_tracker});
}

fsdp_status fsdp_accelerate_scaler_write(const fsdp_grad_scaler *scaler, const char *path)
{
    const fsdp_grad_scaler_state state = fsdp_grad_scaler_get_state(scaler);
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_state_dict_create(&dict));
    fsdp_status status = put_scaler(dict, &state);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, NULL);
    fsdp_state_dict_destroy(dict);
    return status;
}

static fsdp_status get_count(const fsdp_state_dict *dict, const char *path, const char *name,
                             int64_t *count)
{
    double number;
    FSDP_TRY(get_number(dict, path, name, &number));
    if (!(number >= 0.0 && number < 9e15))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: %s is %g", path, name, number);
    *count = (int64_t)number;
    return FSDP_OK;
}

static fsdp_status take_scaler(const fsdp_state_dict *dict, const char *path,
                               fsdp_grad_scaler *scaler)
{
    fsdp_grad_scaler_state s;
    FSDP_TRY(get_number(dict, path, "scale", &s.scale));
    FSDP_TRY(get_number(dict, path, "growth_factor", &s.growth_factor));
    FSDP_TRY(get_number(dict, path, "backoff_factor", &s.backoff_factor));
    FSDP_TRY(get_count(dict, path, "growth_interval", &s.growth_interval));
    FSDP_TRY(get_count(dict, path, "_growth_tracker", &s.growth_tracker));
    fsdp_status status = fsdp_grad_scaler_set_state(scaler, &s);
    fsdp_error_context(status, "%s", path);
    return status;
}

fsdp_status fsdp_accelerate_scaler_read(const char *path, fsdp_grad_scaler *scaler)
{
    fsdp_state_dict *dict;
    FSDP_TRY(load(path, &dict));
    fsdp_status status = take_scaler(dict, path, scaler);
    fsdp_state_dict_destroy(dict);
    return status;
}
