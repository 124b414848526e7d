/* Prints a configuration in the form of Accelerate's JSON files. See yaml_tree.h. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/accelerate/yaml_tree.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/options/yaml_value.h"

/* `text` is a scalar without quotes. Return true if it is a boolean in YAML 1.1, and set *value to
 * the boolean. */
static bool is_bool(const char *text, bool *value)
{
    static const char *const words[] = {"false", "no", "off", "true", "yes", "on"};
    for (size_t i = 0; i < FSDP_LENGTH(words); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *value = i >= 3;
            return true;
        }
    return false;
}

static bool is_null(const char *text)
{
    return !*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

/* Return true if PyYAML reads `text` as a real number, and set *value to it. PyYAML reads a number
 * with an exponent but without a dot as a string. */
static bool is_real(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return *text && !*end && isfinite(*value) && strchr(text, '.') &&
           strspn(text, "+-.0123456789eE") == strlen(text);
}

static void put_scalar(fsdp_json_node to, const fsdp_yaml *from)
{
    const char *text = from->text, *key = from->key;
    int64_t integer;
    double real;
    bool boolean;
    const bool plain = !from->quoted;
    if (plain && is_bool(text, &boolean))
        key ? fsdp_json_set_bool(to, key, boolean) : fsdp_json_append_bool(to, boolean);
    else if (plain && fsdp_yaml_integer(text, &integer))
        key ? fsdp_json_set_i64(to, key, integer) : fsdp_json_append_i64(to, integer);
    else if (plain && is_real(text, &real))
        key ? fsdp_json_set_f64(to, key, real) : fsdp_json_append_f64(to, real);
    else
        key ? fsdp_json_set_str(to, key, plain && is_null(text) ? NULL : text)
            : fsdp_json_append_str(to, text);
}

static void put_entries(fsdp_json_node to, const fsdp_yaml *from)
{
    for (size_t i = 0; i < from->n; i++) {
        const fsdp_yaml *item = &from->items[i];
        const bool is_map = item->kind == FSDP_YAML_MAP;
        if (item->kind == FSDP_YAML_SCALAR)
            put_scalar(to, item);
        else if (item->key)
            put_entries(is_map ? fsdp_json_set_object(to, item->key)
                               : fsdp_json_set_array(to, item->key),
                        item);
        else
            put_entries(is_map ? fsdp_json_append_object(to) : fsdp_json_append_array(to), item);
    }
}

fsdp_status fsdp_yaml_print_json(const fsdp_yaml *root, char **text)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("configuration", &doc));
    put_entries(fsdp_json_root(doc), root);
    const fsdp_status status = fsdp_json_print(doc, FSDP_JSON_PRETTY, text, NULL);
    fsdp_json_destroy(doc);
    return status;
}
