/* See functions.h. */
#include "src/text/jinja/functions.h"

#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"

enum {
    /* largest number of items of range(); the same as jinja2.sandbox.MAX_RANGE */
    MAX_RANGE = 100000
};

/* Return the number of items of range(start, stop, step). No bounds can cause an overflow. */
static uint64_t count_items(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    const uint64_t distance =
        step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (distance - 1) / size + 1;
}

static fsdp_status make_range(jinja_machine *machine, const jinja_args *args, jinja_value *out)
{
    jinja_value values[3];
    int64_t start = 0, stop, step;
    jinja_range *range;
    FSDP_TRY(fsdp_jinja_bind("range", "start,stop,step", 1, args, values));
    FSDP_TRY(fsdp_jinja_arg_int("range", values[0], 0, &start));
    FSDP_TRY(fsdp_jinja_arg_int("range", values[1], start, &stop));
    FSDP_TRY(fsdp_jinja_arg_int("range", values[2], 1, &step));
    if (values[1].kind == JINJA_MISSING)
        start = 0;
    if (step == 0)
        return fsdp_error(FSDP_ERR_INVALID, "range: the third argument must not be zero");
    const uint64_t n = count_items(start, stop, step);
    if (n > MAX_RANGE)
        return fsdp_error(FSDP_ERR_INVALID,
                          "range: %llu items; the sandbox of chat templates allows %d",
                          (unsigned long long)n, MAX_RANGE);
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *range, &range));
    *range = (jinja_range){.start = start, .stop = stop, .step = step, .n = (int64_t)n};
    *out = (jinja_value){.kind = JINJA_RANGE, .as.range = range};
    return FSDP_OK;
}

/* Copy entries to `dict`. `from` is a mapping, or an iterable of pairs of a key and a value. */
static fsdp_status add_entries(jinja_machine *machine, jinja_dict *dict, jinja_value from)
{
    jinja_iterator *it;
    jinja_value item, pair;
    if (from.kind == JINJA_DICT) {
        for (size_t i = 0; i < from.as.dict->n; i++)
            FSDP_TRY(fsdp_jinja_dict_set(machine, dict, from.as.dict->entries[i].key,
                                         from.as.dict->entries[i].value));
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_jinja_iterate(machine, from, &it));
    for (;;) {
        FSDP_TRY(fsdp_jinja_next(machine, it, &item));
        if (item.kind == JINJA_MISSING)
            return FSDP_OK;
        FSDP_TRY(fsdp_jinja_to_list(machine, item, &pair));
        if (pair.as.list->n != 2)
            return fsdp_error(FSDP_ERR_INVALID, "dict: an item has length %zu; 2 is required",
                              pair.as.list->n);
        FSDP_TRY(
            fsdp_jinja_dict_set(machine, dict, pair.as.list->items[0], pair.as.list->items[1]));
    }
}

static fsdp_status make_dict(jinja_machine *machine, const jinja_args *args, jinja_value *out)
{
    jinja_value dict, key;
    if (args->n > 1)
        return fsdp_error(FSDP_ERR_INVALID, "dict takes at most 1 argument, %zu given", args->n);
    FSDP_TRY(fsdp_jinja_dict(machine, &dict));
    if (args->n)
        FSDP_TRY(add_entries(machine, dict.as.dict, args->values[0]));
    for (size_t i = 0; i < args->n_keywords; i++) {
        const jinja_string *name = args->keywords[i].name;
        FSDP_TRY(fsdp_jinja_substring(machine, name->data, name->bytes, &key));
        FSDP_TRY(fsdp_jinja_dict_set(machine, dict.as.dict, key, args->keywords[i].value));
    }
    *out = dict;
    return FSDP_OK;
}

static fsdp_status make_namespace(jinja_machine *machine, const jinja_args *args, jinja_value *out)
{
    jinja_value space;
    FSDP_TRY(make_dict(machine, args, &space));
    for (size_t i = 0; i < space.as.dict->n; i++) {
        const jinja_value key = space.as.dict->entries[i].key;
        if (key.kind == JINJA_STRING && key.as.string->bytes && key.as.string->data[0] == '_')
            return fsdp_error(FSDP_ERR_INVALID,
                              "namespace: a name must not begin with '_', found '%.*s'",
                              fsdp_jinja_shown(key.as.string), key.as.string->data);
    }
    space.kind = JINJA_NAMESPACE;
    *out = space;
    return FSDP_OK;
}

static fsdp_status raise_exception(jinja_machine *machine, const jinja_args *args, jinja_value *out)
{
    jinja_value message;
    (void)out;
    FSDP_TRY(fsdp_jinja_bind("raise_exception", "message", 1, args, &message));
    FSDP_TRY(fsdp_jinja_str(machine, message, &message));
    const jinja_string *text = message.as.string;
    return fsdp_error(FSDP_ERR_INVALID, "the template refuses the conversation: %.*s",
                      text->bytes > 600 ? 600 : (int)text->bytes, text->data);
}

static fsdp_status strftime_now(jinja_machine *machine, const jinja_args *args, jinja_value *out)
{
    jinja_value value;
    jinja_string *format;
    char pattern[256], text[1024];
    struct timeval now;
    struct tm local;
    FSDP_TRY(fsdp_jinja_bind("strftime_now", "format", 1, args, &value));
    FSDP_TRY(fsdp_jinja_arg_text("strftime_now", value, NULL, &format));
    if (!format || format->bytes >= sizeof pattern - 1 ||
        memmem(format->data, format->bytes, "%f", 2) || memchr(format->data, 0, format->bytes))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "strftime_now: the format must be a text of at most "
                          "254 bytes without %%f and NUL");
    memcpy(pattern, format->data, format->bytes);
    /* strftime() returns 0 if the buffer is too small, but also if the result is empty. Because of
     * this space, the result is never empty. */
    memcpy(pattern + format->bytes, " ", 2);
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &local);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t bytes = strftime(text, sizeof text, pattern, &local);
#pragma GCC diagnostic pop
    if (!bytes)
        return fsdp_error(FSDP_ERR_INVALID, "strftime_now: the date is longer than 1023 bytes");
    return fsdp_jinja_string(machine, text, bytes - 1, out);
}

const jinja_function *fsdp_jinja_find_function(const jinja_string *name)
{
    static const jinja_function functions[] = {
        {"raise_exception", raise_exception},
        {"namespace", make_namespace},
        {"range", make_range},
        {"dict", make_dict},
        {"strftime_now", strftime_now},
        {"cycler", NULL},
        {"joiner", NULL},
        {"lipsum", NULL},
        {"self", NULL},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (fsdp_jinja_string_is(name, functions[i].name))
            return &functions[i];
    return NULL;
}
