/* See arguments.h. */
#include "src/text/jinja/arguments.h"

#include <string.h>

#include "src/text/jinja/value.h"

/* `names` is a list of parameters, separated by commas. Return the index of the parameter `name` in
 * this list, or -1 if it is not in the list. */
static int find_param(const char *names, const jinja_string *name)
{
    int index = 0;
    for (const char *p = names; *p; index++) {
        const size_t length = strcspn(p, ",");
        if (length == name->bytes && memcmp(p, name->data, length) == 0)
            return index;
        p += length + (p[length] == ',');
    }
    return -1;
}

static size_t count_params(const char *names)
{
    size_t n = *names != 0;
    for (const char *p = names; *p; p++)
        n += *p == ',';
    return n;
}

fsdp_status fsdp_jinja_bind(const char *function, const char *names, size_t required,
                            const jinja_args *args, jinja_value *values)
{
    const size_t n = count_params(names);
    if (args->n > n)
        return fsdp_error(FSDP_ERR_INVALID, "%s takes at most %zu arguments, %zu given", function,
                          n, args->n);
    for (size_t i = 0; i < n; i++)
        values[i] = i < args->n ? args->values[i] : (jinja_value){.kind = JINJA_MISSING};
    for (size_t i = 0; i < args->n_keywords; i++) {
        const jinja_string *name = args->keywords[i].name;
        const int index = find_param(names, name);
        if (index < 0)
            return fsdp_error(FSDP_ERR_INVALID, "%s has no argument '%.*s'", function,
                              fsdp_jinja_shown(name), name->data);
        if (values[index].kind != JINJA_MISSING)
            return fsdp_error(FSDP_ERR_INVALID, "%s: two values for the argument '%.*s'", function,
                              fsdp_jinja_shown(name), name->data);
        values[index] = args->keywords[i].value;
    }
    for (size_t i = 0; i < required; i++)
        if (values[i].kind == JINJA_MISSING)
            return fsdp_error(FSDP_ERR_INVALID, "%s needs %zu argument%s", function, required,
                              required > 1 ? "s" : "");
    return FSDP_OK;
}

static fsdp_status type_error(const char *function, jinja_value value, const char *expected)
{
    if (value.kind == JINJA_UNDEFINED) {
        const fsdp_status status = fsdp_jinja_undefined_error(value);
        fsdp_error_context(status, "%s", function);
        return status;
    }
    return fsdp_error(FSDP_ERR_INVALID, "%s: expected %s, found an argument of type %s", function,
                      expected, fsdp_jinja_type_name(value));
}

fsdp_status fsdp_jinja_arg_int(const char *function, jinja_value value, int64_t fallback,
                               int64_t *out)
{
    if (value.kind == JINJA_MISSING)
        *out = fallback;
    else if (value.kind == JINJA_INT)
        *out = value.as.integer;
    else if (value.kind == JINJA_BOOL)
        *out = value.as.boolean;
    else
        return type_error(function, value, "an integer");
    return FSDP_OK;
}

fsdp_status fsdp_jinja_arg_text(const char *function, jinja_value value, jinja_string *fallback,
                                jinja_string **out)
{
    if (value.kind == JINJA_MISSING || value.kind == JINJA_NONE)
        *out = fallback;
    else if (value.kind == JINJA_STRING)
        *out = value.as.string;
    else
        return type_error(function, value, "a text");
    return FSDP_OK;
}
