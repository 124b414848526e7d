/* See yaml_tree.h. yaml_read.c reads files. */
#include "src/accelerate/yaml_tree.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"

void fsdp_yaml_fini(fsdp_yaml *node)
{
    for (size_t i = 0; i < node->n; i++)
        fsdp_yaml_fini(&node->items[i]);
    fsdp_free(node->items);
    fsdp_free(node->key);
    fsdp_free(node->text);
    *node = (fsdp_yaml){0};
}

/* ---- changing ---- */

fsdp_yaml *fsdp_yaml_find(const fsdp_yaml *map, const char *key)
{
    for (size_t i = 0; map && i < map->n; i++)
        if (map->items[i].key && strcmp(map->items[i].key, key) == 0)
            return &map->items[i];
    return NULL;
}

const char *fsdp_yaml_text(const fsdp_yaml *map, const char *key)
{
    const fsdp_yaml *value = fsdp_yaml_find(map, key);
    return value && value->kind == FSDP_YAML_SCALAR ? value->text : NULL;
}

void fsdp_yaml_remove(fsdp_yaml *map, const char *key)
{
    fsdp_yaml *value = fsdp_yaml_find(map, key);
    if (!value)
        return;
    const size_t i = (size_t)(value - map->items);
    fsdp_yaml_fini(value);
    memmove(value, value + 1, (map->n - i - 1) * sizeof *value);
    map->n--;
}

/* Add an empty entry `key` to `map`. If `map` already has an entry with this key, remove the old
 * entry. Set *value to the new entry. The caller sets its kind. */
static fsdp_status make_entry(fsdp_yaml *map, const char *key, fsdp_yaml **value)
{
    char *name = fsdp_strdup(key);
    if (!name || !FSDP_GROW(map->items, map->cap, map->n + 1)) {
        fsdp_free(name);
        return FSDP_ERR_NOMEM;
    }
    fsdp_yaml_remove(map, key);
    *value = &map->items[map->n++];
    **value = (fsdp_yaml){.key = name};
    return FSDP_OK;
}

static bool looks_like_another_type(const char *text)
{
    static const char *const words[] = {"y",  "n",   "yes",  "no",   "true", "false",
                                        "on", "off", "null", "none", "~"};
    char *end;
    for (size_t i = 0; i < FSDP_LENGTH(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    strtod(text, &end);
    if (*text && !*end)
        return true;
    /* In YAML, dates, numbers with underscores and numbers in base 60 begin with a digit. So treat
     * a text that begins with a digit as one of these, unless it is an IP address (three dots) or a
     * list of cards (commas). */
    if (strchr(text, ','))
        return false;
    const bool digit = isdigit((unsigned char)text[text[0] == '-' || text[0] == '+']);
    size_t dots = 0;
    for (const char *p = text; *p; p++)
        dots += *p == '.';
    return digit && !(dots == 3 && strspn(text, "0123456789.") == strlen(text));
}

/* Return true if the text can be written without quotes at any place in a file. */
static bool is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char others[] = "0123456789_./,+-";
    if (!*text ||
        !strchr("_/.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *text))
        return false;
    for (const char *p = text; *p; p++)
        if (!strchr(letters, *p) && !strchr(others, *p))
            return false;
    return true;
}

fsdp_status fsdp_yaml_set(fsdp_yaml *map, const char *key, const char *text, bool is_string)
{
    fsdp_yaml *value;
    char *copy = fsdp_strdup(text);
    fsdp_status status = copy ? make_entry(map, key, &value) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_free(copy);
        return status;
    }
    value->kind = FSDP_YAML_SCALAR;
    value->text = copy;
    value->quoted = is_string && looks_like_another_type(text);
    return FSDP_OK;
}

fsdp_status fsdp_yaml_set_empty(fsdp_yaml *map, const char *key, fsdp_yaml_kind kind,
                                fsdp_yaml **value)
{
    FSDP_TRY(make_entry(map, key, value));
    (*value)->kind = kind;
    return FSDP_OK;
}

/* ---- writing ---- */

/* Return true if `text` has a control character, which cannot be written in single quotes. */
static bool needs_escapes(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

static void print_text(fsdp_str *out, const char *text, bool quoted)
{
    /* If `quoted` is false, a text such as -1 is a number and ~ is null. Print them without quotes,
     * because quotes would make strings of them. */
    if (!quoted && (is_plain(text) || looks_like_another_type(text))) {
        fsdp_str_printf(out, "%s", text);
        return;
    }
    const bool escapes = needs_escapes(text);
    fsdp_str_printf(out, escapes ? "\"" : "'");
    for (; *text; text++) {
        if (escapes && ((unsigned char)*text < 0x20 || *text == 0x7f))
            fsdp_str_printf(out, "\\x%02x", (unsigned)(unsigned char)*text);
        else if (escapes && (*text == '"' || *text == '\\'))
            fsdp_str_printf(out, "\\%c", *text);
        else
            fsdp_str_printf(out, !escapes && *text == '\'' ? "''" : "%c", *text);
    }
    fsdp_str_printf(out, escapes ? "\"" : "'");
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const fsdp_yaml *)a)->key, ((const fsdp_yaml *)b)->key);
}

static void print_entries(fsdp_str *out, fsdp_yaml *node, int indent);

/* Print the value that follows "key:" or "-". */
static void print_value(fsdp_str *out, fsdp_yaml *value, int indent, bool in_list)
{
    if (value->kind == FSDP_YAML_SCALAR) {
        fsdp_str_append(out, " ", 1);
        if (value->quoted || *value->text)
            print_text(out, value->text, value->quoted);
        else
            fsdp_str_printf(out, "null");
        fsdp_str_append(out, "\n", 1);
    } else if (value->n == 0) {
        fsdp_str_printf(out, value->kind == FSDP_YAML_LIST ? " []\n" : " {}\n");
    } else {
        fsdp_str_append(out, "\n", 1);
        /* PyYAML does not indent the items of a list in a map. */
        print_entries(out, value, value->kind == FSDP_YAML_LIST && !in_list ? indent : indent + 2);
    }
}

static void print_entries(fsdp_str *out, fsdp_yaml *node, int indent)
{
    if (node->kind == FSDP_YAML_MAP && node->n > 1)
        qsort(node->items, node->n, sizeof *node->items, compare_keys);
    for (size_t i = 0; i < node->n; i++) {
        fsdp_str_printf(out, "%*s", indent, "");
        if (node->kind == FSDP_YAML_MAP) {
            print_text(out, node->items[i].key, false);
            fsdp_str_append(out, ":", 1);
        } else {
            fsdp_str_append(out, "-", 1);
        }
        print_value(out, &node->items[i], indent, node->kind == FSDP_YAML_LIST);
    }
}

char *fsdp_yaml_print(fsdp_yaml *root)
{
    fsdp_str out = {0};
    print_entries(&out, root, 0);
    return fsdp_str_take(&out);
}
