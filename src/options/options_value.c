/* Parses and checks the text of an option's value, stores the value in the command's struct, and
 * formats values as text. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/options/options_parse.h"

void *fsdp_options_own(fsdp_options *options, void *p)
{
    if (!p)
        return NULL;
    if (!FSDP_GROW(options->owned, options->owned_cap, options->n_owned + 1)) {
        fsdp_free(p);
        return NULL;
    }
    return options->owned[options->n_owned++] = p;
}

bool fsdp_option_bool_from_text(const char *text, bool *value)
{
    static const char *const words[] = {"false", "no", "off", "0", "true", "yes", "on", "1"};
    for (size_t i = 0; i < FSDP_LENGTH(words); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value = i >= 4;
            return true;
        }
    }
    return false;
}

int fsdp_option_choice_length(const char *choice)
{
    return (int)strcspn(choice, "|");
}

static bool word_matches(const char *spelling, size_t length, const char *word)
{
    for (size_t i = 0; i < length; i++) {
        char a = spelling[i] == '_' ? '-' : spelling[i];
        char b = word[i] == '_' ? '-' : word[i];
        if (tolower((unsigned char)a) != tolower((unsigned char)b))
            return false;
    }
    return word[length] == 0;
}

bool fsdp_option_choice_matches(const char *choice, const char *word)
{
    for (;;) {
        size_t length = strcspn(choice, "|");
        if (word_matches(choice, length, word))
            return true;
        if (!choice[length])
            return false;
        choice += length + 1;
    }
}

/* Append the shortest decimal that reads back as the same double, or "null" for NAN. */
static void append_double(fsdp_str *out, double value)
{
    char text[32] = "null";
    for (int digits = 6; digits <= 17 && !isnan(value); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fsdp_str_printf(out, "%s", text);
}

static void append_size(fsdp_str *out, int64_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes && bytes % 1024 == 0 && unit + 1 < FSDP_LENGTH(units)) {
        bytes /= 1024;
        unit++;
    }
    fsdp_str_printf(out, "%lld%s", (long long)bytes, units[unit]);
}

static void append_bound(fsdp_str *out, fsdp_option_type type, double value)
{
    if (type == FSDP_OPTION_SIZE)
        append_size(out, (int64_t)value);
    else if (type != FSDP_OPTION_DOUBLE)
        fsdp_str_printf(out, "%.0f", value);
    else
        append_double(out, value);
}

static void append_bounds(const fsdp_option *option, fsdp_str *out)
{
    const fsdp_option_bounds *b = &option->bounds;
    if (!b->set)
        return;
    bool open_ended = isinf(b->max);
    fsdp_str_printf(out, b->above ? " above " : open_ended ? " of at least " : " from ");
    append_bound(out, option->type, b->min);
    if (open_ended)
        return;
    fsdp_str_printf(out, b->below ? " to below " : b->above ? " up to " : " to ");
    append_bound(out, option->type, b->max);
}

static void append_choices(const fsdp_option *option, fsdp_str *out)
{
    for (const char *const *choice = option->choices; *choice; choice++) {
        const char *between = choice == option->choices ? "" : choice[1] ? ", " : " or ";
        fsdp_str_printf(out, "%s%.*s", between, fsdp_option_choice_length(*choice), *choice);
    }
}

void fsdp_option_allowed(const fsdp_option *option, fsdp_str *out)
{
    static const char *const kinds[] = {
        [FSDP_OPTION_BOOL] = "true or false (yes/no, on/off, 1/0)",
        [FSDP_OPTION_BOOL_OR_INT] = "true, false or an integer",
        [FSDP_OPTION_INT] = "an integer",
        [FSDP_OPTION_INT64] = "an integer",
        [FSDP_OPTION_DOUBLE] = "a number",
        [FSDP_OPTION_STRING] = "a text",
        [FSDP_OPTION_CHOICE] = "",
        [FSDP_OPTION_DTYPE] = "a dtype such as float32 or bfloat16",
        [FSDP_OPTION_SIZE] = "a size such as 512MiB or 8GB",
        [FSDP_OPTION_LIST] = "a list: a,b,c",
    };
    fsdp_str_printf(out, "%s", kinds[option->type]);
    if (option->type == FSDP_OPTION_CHOICE)
        append_choices(option, out);
    else
        append_bounds(option, out);
    fsdp_str_printf(out, "%s", option->infinite ? ", or inf" : "");
}

static fsdp_status wrong_value(const fsdp_option *option, const char *text)
{
    fsdp_str allowed = {0};
    fsdp_option_allowed(option, &allowed);
    /* If option->no_effect of a CHOICE option is set, add it to the message. It says why the option
     * changes nothing, and this is also the reason why other words are refused. */
    const bool explain = option->type == FSDP_OPTION_CHOICE && option->no_effect;
    fsdp_status status = fsdp_error(FSDP_ERR_INVALID, "'%.200s' is not allowed; it takes %s%s%s",
                                    text, allowed.data ? allowed.data : "another value",
                                    explain ? ": " : "", explain ? option->no_effect : "");
    fsdp_str_fini(&allowed);
    return status;
}

static bool in_bounds(const fsdp_option_bounds *b, double value)
{
    if (!b->set)
        return true;
    return (b->above ? value > b->min : value >= b->min) &&
           (b->below ? value < b->max : value <= b->max);
}

/* Parse the whole text as an integer. Spaces around it are refused. */
static bool int64_from_text(const char *text, int64_t *value)
{
    char *end;
    if (!*text || isspace((unsigned char)*text))
        return false;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    *value = parsed;
    return *end == 0 && end != text && errno == 0;
}

static bool double_from_text(const char *text, double *value)
{
    char *end;
    if (!*text || isspace((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    *value = strtod(text, &end);
    return *end == 0 && end != text && !isnan(*value);
}

static bool size_from_text(const char *text, int64_t *value)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"", 1},         {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
        {"T", 0x1p40},   {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    };
    char *end;
    if (!isdigit((unsigned char)*text) || (text[0] == '0' && tolower(text[1]) == 'x'))
        return false;
    double number = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < FSDP_LENGTH(units); i++) {
        if (strcasecmp(end, units[i].name) != 0)
            continue;
        double bytes = floor(number * units[i].factor);
        if (!(bytes < 0x1p62))
            return false;
        *value = (int64_t)bytes;
        return true;
    }
    return false;
}

static fsdp_status choice_from_text(const fsdp_option *option, const char *text, int *value)
{
    for (int i = 0; option->choices[i]; i++) {
        if (fsdp_option_choice_matches(option->choices[i], text)) {
            *value = i;
            return FSDP_OK;
        }
    }
    return wrong_value(option, text);
}

static fsdp_status number_from_text(const fsdp_option *option, const char *text, int64_t *integer,
                                    double *real)
{
    bool read = false;
    if (option->type == FSDP_OPTION_DOUBLE) {
        read = double_from_text(text, real) && (option->infinite || isfinite(*real));
    } else {
        read = option->type == FSDP_OPTION_SIZE ? size_from_text(text, integer)
                                                : int64_from_text(text, integer);
        if (option->type == FSDP_OPTION_INT && (*integer < INT_MIN || *integer > INT_MAX))
            read = false;
        *real = (double)*integer;
    }
    return read && in_bounds(&option->bounds, *real) ? FSDP_OK : wrong_value(option, text);
}

/* Return a copy of text [length] without leading and trailing spaces. The caller owns the copy. */
static char *trimmed(const char *text, size_t length)
{
    while (length && isspace((unsigned char)*text))
        text++, length--;
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    return fsdp_strndup(text, length);
}

/* Split a text such as "a, b,c" into items, which `options` owns. An empty text gives an empty
 * list; an empty item is an error. */
static fsdp_status split_list(fsdp_options *options, const fsdp_option *option, const char *text,
                              fsdp_option_list *list)
{
    const char *rest = text;
    size_t count = *text ? 1 : 0;
    for (const char *p = text; *p; p++)
        count += *p == ',';
    const char **items = fsdp_options_own(options, fsdp_calloc(count, sizeof *items));
    if (!items)
        return fsdp_error_nomem();
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(rest, ",");
        items[i] = fsdp_options_own(options, trimmed(rest, length));
        if (!items[i])
            return fsdp_error_nomem();
        if (!*items[i])
            return wrong_value(option, text);
        rest += length + 1;
    }
    *list = (fsdp_option_list){.items = count ? items : NULL, .count = count};
    return FSDP_OK;
}

/* Set *list to the items that earlier uses of the same flag gave, followed by given->text. */
static fsdp_status append_item(fsdp_options *options, const fsdp_option *option,
                               const fsdp_option_given *given, const void *place,
                               fsdp_option_list *list)
{
    fsdp_option_list before = {0};
    const struct option_source *source = &options->sources[option - options->spec->table];
    if (given->origin == FSDP_ORIGIN_FLAG && source->origin == FSDP_ORIGIN_FLAG)
        memcpy(&before, place, sizeof before);
    const char **items =
        fsdp_options_own(options, fsdp_calloc(before.count + 1, sizeof *before.items));
    if (!items)
        return FSDP_ERR_NOMEM;
    if (before.count)
        memcpy(items, before.items, before.count * sizeof *items);
    items[before.count] = given->text;
    *list = (fsdp_option_list){.items = items, .count = before.count + 1};
    return FSDP_OK;
}

static fsdp_status store_list(fsdp_options *options, const fsdp_option *option,
                              const fsdp_option_given *given, void *place)
{
    fsdp_option_list list = {.items = given->n_items ? given->items : NULL,
                             .count = given->n_items};
    if (!given->items && option->repeats)
        FSDP_TRY(append_item(options, option, given, place, &list));
    else if (!given->items)
        FSDP_TRY(split_list(options, option, given->text, &list));
    memcpy(place, &list, sizeof list);
    return FSDP_OK;
}

static fsdp_status store_bool(const fsdp_option *option, const fsdp_option_given *given,
                              void *place)
{
    bool value = true;
    if (given->text && !fsdp_option_bool_from_text(given->text, &value))
        return wrong_value(option, given->text);
    value = value != given->negated;
    memcpy(place, &value, sizeof value);
    return FSDP_OK;
}

/* If `text` is a spelling of one of the option's choices, set *index to that choice and return
 * true. A text that begins with a digit never matches, because the caller reads it as an
 * integer. */
static bool word_from_text(const fsdp_option *option, const char *text, int *index)
{
    for (int i = 0; option->choices && option->choices[i] && !isdigit((unsigned char)*text); i++)
        if (fsdp_option_choice_matches(option->choices[i], text)) {
            *index = i;
            return true;
        }
    return false;
}

bool fsdp_option_is_switch_value(const fsdp_option *option, const char *text)
{
    bool value;
    int index;
    if (fsdp_option_bool_from_text(text, &value) || word_from_text(option, text, &index))
        return true;
    return option->type == FSDP_OPTION_BOOL_OR_INT && *text &&
           strspn(text, "0123456789") == strlen(text);
}

static fsdp_status store_bool_or_int(const fsdp_option *option, const fsdp_option_given *given,
                                     void *place)
{
    bool on = true;
    int64_t integer = 0;
    double real = 0;
    int index;
    if (given->text && !fsdp_option_bool_from_text(given->text, &on)) {
        if (given->negated)
            return wrong_value(option, given->text);
        if (word_from_text(option, given->text, &index))
            integer = -1 - index;
        else
            FSDP_TRY(number_from_text(option, given->text, &integer, &real));
    }
    const int value = integer ? (int)integer : on != given->negated;
    memcpy(place, &value, sizeof value);
    return FSDP_OK;
}

/* Convert the value `given` and store it at `place`, which is large enough for the option's
 * type. */
static fsdp_status store_value(fsdp_options *options, const fsdp_option *option,
                               const fsdp_option_given *given, void *place)
{
    int64_t integer = 0;
    double real = 0;
    int small = 0;
    fsdp_dtype dtype = FSDP_DTYPE_F32;
    if (option->type == FSDP_OPTION_LIST)
        return store_list(options, option, given, place);
    if (given->items)
        return fsdp_error(FSDP_ERR_INVALID, "takes one value, not a sequence");
    if (option->type == FSDP_OPTION_BOOL)
        return store_bool(option, given, place);
    if (option->type == FSDP_OPTION_BOOL_OR_INT)
        return store_bool_or_int(option, given, place);
    switch (option->type) {
    case FSDP_OPTION_INT:
        FSDP_TRY(number_from_text(option, given->text, &integer, &real));
        small = (int)integer;
        memcpy(place, &small, sizeof small);
        break;
    case FSDP_OPTION_INT64:
    case FSDP_OPTION_SIZE:
        FSDP_TRY(number_from_text(option, given->text, &integer, &real));
        memcpy(place, &integer, sizeof integer);
        break;
    case FSDP_OPTION_DOUBLE:
        FSDP_TRY(number_from_text(option, given->text, &integer, &real));
        memcpy(place, &real, sizeof real);
        break;
    case FSDP_OPTION_CHOICE:
        FSDP_TRY(choice_from_text(option, given->text, &small));
        memcpy(place, &small, sizeof small);
        break;
    case FSDP_OPTION_DTYPE:
        FSDP_TRY(fsdp_dtype_from_name(given->text, &dtype));
        memcpy(place, &dtype, sizeof dtype);
        break;
    default:
        FSDP_ASSERT(option->type == FSDP_OPTION_STRING);
        memcpy(place, &given->text, sizeof given->text);
    }
    return FSDP_OK;
}

static const size_t sizes[] = {
    [FSDP_OPTION_BOOL] = sizeof(bool),
    [FSDP_OPTION_INT] = sizeof(int),
    [FSDP_OPTION_INT64] = sizeof(int64_t),
    [FSDP_OPTION_DOUBLE] = sizeof(double),
    [FSDP_OPTION_STRING] = sizeof(const char *),
    [FSDP_OPTION_CHOICE] = sizeof(int),
    [FSDP_OPTION_DTYPE] = sizeof(fsdp_dtype),
    [FSDP_OPTION_SIZE] = sizeof(int64_t),
    [FSDP_OPTION_LIST] = sizeof(fsdp_option_list),
    [FSDP_OPTION_BOOL_OR_INT] = sizeof(int),
};

void fsdp_option_clear(const fsdp_option *option, void *place)
{
    const double unset = (double)NAN;
    memset(place, 0, sizes[option->type]);
    if (option->type == FSDP_OPTION_DOUBLE)
        memcpy(place, &unset, sizeof unset);
}

/* Return true if the value `given` is the option's default. The texts given->text and option->value
 * may be different spellings of one value, so compare the converted value, which is at `place`. */
static bool is_default_in_any_spelling(const fsdp_option *option, const fsdp_option_given *given,
                                       const void *place)
{
    bool on = false;
    double number = 0;
    switch (option->type) {
    case FSDP_OPTION_BOOL:
        (void)(option->value && fsdp_option_bool_from_text(option->value, &on));
        return *(const bool *)place == on;
    case FSDP_OPTION_DOUBLE:
        return option->value && double_from_text(option->value, &number) &&
               *(const double *)place == number;
    case FSDP_OPTION_STRING:
        return option->value && fsdp_option_choice_matches(option->value, given->text);
    default:
        return false;
    }
}

/* Return the error for an unsupported value. The message contains option->instead, which says what
 * to use instead. */
static fsdp_status refuse_unsupported(const fsdp_option *option, const fsdp_option_given *given)
{
    const bool is_switch = option->type == FSDP_OPTION_BOOL;
    const char *value = !is_switch ? given->text : given->text ? given->text : "";
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%.200s%snot supported: %s", value,
                      *value ? " is " : "", option->instead);
}

/* Return true if the value at `place` counts as not given (see fsdp_option.false_is_silence). */
static bool is_silence(const fsdp_option *option, const fsdp_option_given *given, const void *place)
{
    return option->false_is_silence && given->origin < FSDP_ORIGIN_FLAG && !given->negated &&
           !*(const bool *)place;
}

/* Large enough for a value of any option type. */
typedef union any_value {
    long long integer;
    double real;
    const char *text;
    fsdp_option_list list;
} any_value;

/* Return true if the value at `place` is the option's default. If the option has no default, return
 * true for 0, false, an empty text or an empty list. */
static bool is_default(fsdp_options *options, const fsdp_option *option, const void *place)
{
    any_value value = {0};
    const size_t size = sizes[option->type];
    if (option->type == FSDP_OPTION_LIST)
        return !option->value && ((const fsdp_option_list *)place)->count == 0;
    if (option->type == FSDP_OPTION_STRING)
        return strcmp(*(const char *const *)place, option->value ? option->value : "") == 0;
    const fsdp_option_given given = {.text = option->value};
    if (option->value && store_value(options, option, &given, &value) != FSDP_OK)
        return false;
    return memcmp(&value, place, size) == 0;
}

static bool is_same_list(const fsdp_option_list *a, const fsdp_option_list *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

bool fsdp_option_same_value(fsdp_options *options, const fsdp_option_given *a,
                            const fsdp_option_given *b)
{
    const fsdp_option *option = &options->spec->table[a->index];
    any_value first = {0}, second = {0};
    if (store_value(options, option, a, &first) != FSDP_OK ||
        store_value(options, option, b, &second) != FSDP_OK)
        return false;
    if (option->type == FSDP_OPTION_LIST)
        return is_same_list(&first.list, &second.list);
    if (option->type == FSDP_OPTION_STRING)
        return strcmp(first.text, second.text) == 0;
    return memcmp(&first, &second, sizes[option->type]) == 0;
}

/* Return true if the value at `place` asks for nothing (see fsdp_options_asked_for()). A value that
 * is not the option's default always asks for something. If the value is the default, the answer
 * depends on where the value comes from. In a file, the default asks for nothing, because files of
 * other tools list all options. For an environment variable, fsdp_options_asked_for() does not use
 * the result. On the command line, the default asks for nothing in two cases: the option is a
 * switch; or the default is 0 or empty, and the type is neither CHOICE nor DTYPE. */
static bool says_nothing(fsdp_options *options, const fsdp_option *option,
                         const fsdp_option_given *given, const void *place)
{
    static const any_value zero = {0};
    const bool empty = option->type == FSDP_OPTION_STRING
                           ? !**(const char *const *)place
                           : memcmp(place, &zero, sizes[option->type]) == 0;
    return is_default(options, option, place) &&
           (given->origin != FSDP_ORIGIN_FLAG || fsdp_option_is_switch(option) ||
            (empty && option->type != FSDP_OPTION_CHOICE && option->type != FSDP_OPTION_DTYPE));
}

fsdp_status fsdp_options_set(fsdp_options *options, void *target, const fsdp_option_given *given)
{
    const fsdp_option *option = &options->spec->table[given->index];
    any_value nowhere = {0};
    void *place =
        option->offset == FSDP_OPTION_NOWHERE ? (void *)&nowhere : (char *)target + option->offset;
    fsdp_status status = store_value(options, option, given, place);
    if (status == FSDP_OK && option->instead && given->origin != FSDP_ORIGIN_DEFAULT &&
        !is_default_in_any_spelling(option, given, place))
        status = refuse_unsupported(option, given);
    if (status != FSDP_OK) {
        if (given->key)
            fsdp_error_context(status, "%s: %s", given->where, given->key);
        else
            fsdp_error_context(status, "%s", given->where ? given->where : option->name);
        return status;
    }
    if (is_silence(option, given, place))
        options->sources[given->index] = (struct option_source){.origin = FSDP_ORIGIN_DEFAULT};
    else if (given->origin != FSDP_ORIGIN_DEFAULT)
        options->sources[given->index] =
            (struct option_source){.origin = given->origin,
                                   .where = given->where,
                                   .key = given->key,
                                   .text = given->text,
                                   .says_nothing = says_nothing(options, option, given, place)};
    return FSDP_OK;
}

static void append_bool_or_int(const fsdp_option *option, int value, fsdp_str *out)
{
    if (value < 0) {
        const char *word = option->choices[-1 - value];
        fsdp_str_printf(out, "%.*s", fsdp_option_choice_length(word), word);
    } else if (value <= 1) {
        fsdp_str_printf(out, "%s", value ? "true" : "false");
    } else {
        fsdp_str_printf(out, "%d", value);
    }
}

char *fsdp_option_text(const fsdp_option *option, const void *target)
{
    fsdp_str out = {0};
    if (option->offset == FSDP_OPTION_NOWHERE) {
        fsdp_str_printf(&out, "%s", option->value ? option->value : "");
        return fsdp_str_take(&out);
    }
    const void *place = (const char *)target + option->offset;
    const char *text = NULL;
    fsdp_option_list list;
    switch (option->type) {
    case FSDP_OPTION_BOOL:
        fsdp_str_printf(&out, "%s", *(const bool *)place ? "true" : "false");
        break;
    case FSDP_OPTION_BOOL_OR_INT:
        append_bool_or_int(option, *(const int *)place, &out);
        break;
    case FSDP_OPTION_INT:
        fsdp_str_printf(&out, "%d", *(const int *)place);
        break;
    case FSDP_OPTION_INT64:
        fsdp_str_printf(&out, "%lld", (long long)*(const int64_t *)place);
        break;
    case FSDP_OPTION_SIZE:
        append_size(&out, *(const int64_t *)place);
        break;
    case FSDP_OPTION_DOUBLE:
        append_double(&out, *(const double *)place);
        break;
    case FSDP_OPTION_CHOICE:
        text = option->choices[*(const int *)place];
        fsdp_str_append(&out, text, (size_t)fsdp_option_choice_length(text));
        break;
    case FSDP_OPTION_DTYPE:
        fsdp_str_printf(&out, "%s", fsdp_dtype_name(*(const fsdp_dtype *)place));
        break;
    case FSDP_OPTION_STRING:
        text = *(const char *const *)place;
        fsdp_str_printf(&out, "%s", text ? text : "");
        break;
    case FSDP_OPTION_LIST:
        list = *(const fsdp_option_list *)place;
        for (size_t i = 0; i < list.count; i++)
            fsdp_str_printf(&out, "%s%s", i ? "," : "", list.items[i]);
        break;
    }
    return fsdp_str_take(&out);
}
