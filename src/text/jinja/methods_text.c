/* The methods of Python's str that templates can call, such as text.strip(). */
#include <string.h>

#include "src/text/jinja/chars.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/methods.h"
#include "src/text/jinja/strings.h"

/* ---- case and classes of characters ---------------------------------------------------------- */

static fsdp_status change_case(jinja_machine *machine, jinja_value self, const jinja_args *args,
                               const char *name, jinja_case how, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind(name, "", 0, args, NULL));
    return fsdp_jinja_change_case(machine, self.as.string, how, out);
}

static fsdp_status upper(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return change_case(machine, self, args, "upper", JINJA_CASE_UPPER, out);
}

static fsdp_status lower(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return change_case(machine, self, args, "lower", JINJA_CASE_LOWER, out);
}

static fsdp_status capitalize(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    return change_case(machine, self, args, "capitalize", JINJA_CASE_CAPITALIZE, out);
}

static fsdp_status title(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return change_case(machine, self, args, "title", JINJA_CASE_TITLE, out);
}

/* Set *out to true if the text is not empty, and each of its characters is in class `a` or in class
 * `b`. */
static fsdp_status all_are(jinja_machine *machine, const jinja_string *text, jinja_char_class a,
                           jinja_char_class b, jinja_value *out)
{
    bool all = text->bytes > 0;
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 4));
    for (size_t at = 0; all && at < text->bytes;) {
        bool is_a, is_b;
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &at);
        FSDP_TRY(fsdp_jinja_char_is(c, a, &is_a));
        FSDP_TRY(fsdp_jinja_char_is(c, b, &is_b));
        all = is_a || is_b;
    }
    *out = jinja_bool(all);
    return FSDP_OK;
}

#define CLASS_METHOD(function, name, a, b)                                                         \
    static fsdp_status function(jinja_machine *machine, jinja_value self, const jinja_args *args,  \
                                jinja_value *out)                                                  \
    {                                                                                              \
        FSDP_TRY(fsdp_jinja_bind(name, "", 0, args, NULL));                                        \
        return all_are(machine, self.as.string, a, b, out);                                        \
    }

CLASS_METHOD(isalpha_of, "isalpha", JINJA_CHAR_ALPHA, JINJA_CHAR_ALPHA)
CLASS_METHOD(isdecimal_of, "isdecimal", JINJA_CHAR_DECIMAL, JINJA_CHAR_DECIMAL)
CLASS_METHOD(isdigit_of, "isdigit", JINJA_CHAR_DIGIT, JINJA_CHAR_DIGIT)

static fsdp_status isprintable(jinja_machine *machine, jinja_value self, const jinja_args *args,
                               jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("isprintable", "", 0, args, NULL));
    FSDP_TRY(all_are(machine, self.as.string, JINJA_CHAR_PRINTABLE, JINJA_CHAR_PRINTABLE, out));
    out->as.boolean |= self.as.string->bytes == 0;
    return FSDP_OK;
}

static fsdp_status isspace_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    const jinja_string *text = self.as.string;
    bool all = text->bytes > 0;
    FSDP_TRY(fsdp_jinja_bind("isspace", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 4));
    for (size_t at = 0; all && at < text->bytes;)
        all = fsdp_jinja_is_space(fsdp_jinja_next_char(text->data, text->bytes, &at));
    *out = jinja_bool(all);
    return FSDP_OK;
}

static fsdp_status isascii_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    const jinja_string *text = self.as.string;
    bool all = true;
    FSDP_TRY(fsdp_jinja_bind("isascii", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 8));
    for (size_t i = 0; all && i < text->bytes; i++)
        all = (unsigned char)text->data[i] < 0x80;
    *out = jinja_bool(all);
    return FSDP_OK;
}

/* Set *out to true if the text has at least one cased letter, and all of its cased letters are in
 * the class `wanted`. `other` is the opposite case. */
static fsdp_status all_cased_are(jinja_machine *machine, jinja_value self, jinja_char_class wanted,
                                 jinja_char_class other, jinja_value *out)
{
    const jinja_string *text = self.as.string;
    bool any = false, none = true;
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 4));
    for (size_t at = 0; none && at < text->bytes;) {
        bool is_wanted, is_other, is_title;
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &at);
        FSDP_TRY(fsdp_jinja_char_is(c, wanted, &is_wanted));
        FSDP_TRY(fsdp_jinja_char_is(c, other, &is_other));
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_TITLE, &is_title));
        any = any || is_wanted;
        none = !is_other && !is_title;
    }
    *out = jinja_bool(any && none);
    return FSDP_OK;
}

static fsdp_status islower_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("islower", "", 0, args, NULL));
    return all_cased_are(machine, self, JINJA_CHAR_LOWER, JINJA_CHAR_UPPER, out);
}

static fsdp_status isupper_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("isupper", "", 0, args, NULL));
    return all_cased_are(machine, self, JINJA_CHAR_UPPER, JINJA_CHAR_LOWER, out);
}

static fsdp_status isalnum_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_bind("isalnum", "", 0, args, NULL));
    return all_are(machine, self.as.string, JINJA_CHAR_ALPHA, JINJA_CHAR_NUMBER, out);
}

/* ---- stripping, splitting, joining ----------------------------------------------------------- */

static fsdp_status strip_ends(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              const char *name, int ends, jinja_value *out)
{
    jinja_value value;
    jinja_string *chars;
    FSDP_TRY(fsdp_jinja_bind(name, "chars", 0, args, &value));
    FSDP_TRY(fsdp_jinja_arg_text(name, value, NULL, &chars));
    return fsdp_jinja_strip(machine, self.as.string, chars, ends, out);
}

static fsdp_status strip(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return strip_ends(machine, self, args, "strip", JINJA_LEFT | JINJA_RIGHT, out);
}

static fsdp_status lstrip(jinja_machine *machine, jinja_value self, const jinja_args *args,
                          jinja_value *out)
{
    return strip_ends(machine, self, args, "lstrip", JINJA_LEFT, out);
}

static fsdp_status rstrip(jinja_machine *machine, jinja_value self, const jinja_args *args,
                          jinja_value *out)
{
    return strip_ends(machine, self, args, "rstrip", JINJA_RIGHT, out);
}

static fsdp_status split(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    jinja_value values[2];
    jinja_string *separator;
    int64_t most;
    FSDP_TRY(fsdp_jinja_bind("split", "sep,maxsplit", 0, args, values));
    FSDP_TRY(fsdp_jinja_arg_text("split", values[0], NULL, &separator));
    FSDP_TRY(fsdp_jinja_arg_int("split", values[1], -1, &most));
    return fsdp_jinja_split(machine, self.as.string, separator, most, out);
}

static fsdp_status rsplit(jinja_machine *machine, jinja_value self, const jinja_args *args,
                          jinja_value *out)
{
    jinja_value values[2];
    jinja_string *separator;
    int64_t most;
    FSDP_TRY(fsdp_jinja_bind("rsplit", "sep,maxsplit", 0, args, values));
    FSDP_TRY(fsdp_jinja_arg_text("rsplit", values[0], NULL, &separator));
    FSDP_TRY(fsdp_jinja_arg_int("rsplit", values[1], -1, &most));
    return fsdp_jinja_split_right(machine, self.as.string, separator, most, out);
}

static fsdp_status splitlines(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    jinja_value value;
    int64_t keep;
    FSDP_TRY(fsdp_jinja_bind("splitlines", "keepends", 0, args, &value));
    FSDP_TRY(fsdp_jinja_arg_int("splitlines", value, 0, &keep));
    return fsdp_jinja_split_lines(machine, self.as.string, keep != 0, out);
}

static fsdp_status join(jinja_machine *machine, jinja_value self, const jinja_args *args,
                        jinja_value *out)
{
    jinja_value items;
    FSDP_TRY(fsdp_jinja_bind("join", "iterable", 1, args, &items));
    return fsdp_jinja_join(machine, items, self.as.string, true, out);
}

static fsdp_status need_text(const char *name, jinja_value value, jinja_string **out)
{
    if (value.kind == JINJA_NONE)
        return fsdp_error(FSDP_ERR_INVALID, "%s: expected a text, found None", name);
    return fsdp_jinja_arg_text(name, value, NULL, out);
}

static fsdp_status replace(jinja_machine *machine, jinja_value self, const jinja_args *args,
                           jinja_value *out)
{
    jinja_value values[3];
    jinja_string *old, *new_text;
    int64_t count;
    FSDP_TRY(fsdp_jinja_bind("replace", "old,new,count", 2, args, values));
    FSDP_TRY(need_text("replace", values[0], &old));
    FSDP_TRY(need_text("replace", values[1], &new_text));
    FSDP_TRY(fsdp_jinja_arg_int("replace", values[2], -1, &count));
    return fsdp_jinja_replace(machine, self.as.string, old, new_text, count, out);
}

/* ---- searching ------------------------------------------------------------------------------- */

/* `values` [2] are the arguments `start` and `end` of a method such as str.find(), which count
 * characters, as in a slice. Set [*begin, *end) to the corresponding bytes of the text. If the
 * slice cannot contain even an empty text, *begin is greater than *end. */
static fsdp_status slice_bytes(const char *name, jinja_string *text, const jinja_value *values,
                               size_t *begin, size_t *end)
{
    const int64_t chars = (int64_t)fsdp_jinja_chars(text);
    int64_t first = 0, last = chars;
    if (values[0].kind != JINJA_NONE)
        FSDP_TRY(fsdp_jinja_arg_int(name, values[0], 0, &first));
    if (values[1].kind != JINJA_NONE)
        FSDP_TRY(fsdp_jinja_arg_int(name, values[1], chars, &last));
    first = first < -chars ? 0 : first < 0 ? first + chars : first;
    last = last < -chars ? 0 : last < 0 ? last + chars : last > chars ? chars : last;
    *begin = first > chars ? text->bytes + 1 : fsdp_jinja_offset(text, (size_t)first);
    *end = fsdp_jinja_offset(text, (size_t)last);
    return FSDP_OK;
}

/* The arguments are a text to find and, optionally, the start and the end of a slice of `self`. Set
 * *at to the byte offset of the first occurrence in the slice or, if from_right is true, of the
 * last one. If there is none, set *at to SIZE_MAX. */
static fsdp_status find_part(jinja_machine *machine, const char *name, jinja_value self,
                             const jinja_args *args, bool from_right, size_t *at)
{
    jinja_value values[3];
    jinja_string *part, *text = self.as.string;
    size_t begin, end;
    FSDP_TRY(fsdp_jinja_bind(name, "sub,start,end", 1, args, values));
    FSDP_TRY(need_text(name, values[0], &part));
    FSDP_TRY(slice_bytes(name, text, values + 1, &begin, &end));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 8));
    *at = SIZE_MAX;
    if (begin > end || part->bytes > end - begin)
        return FSDP_OK;
    if (!from_right) {
        const char *found = memmem(text->data + begin, end - begin, part->data, part->bytes);
        *at = found ? (size_t)(found - text->data) : SIZE_MAX;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_jinja_charge(machine, (end - begin) * (1 + part->bytes / 16)));
    for (size_t i = end - part->bytes + 1; i-- > begin;) {
        if (fsdp_jinja_has_at(text, i, part)) {
            *at = i;
            break;
        }
    }
    return FSDP_OK;
}

/* Like find_part(), but set *out to the index of the occurrence in characters. If there is none,
 * set *out to -1, or return an error if must_exist is true. */
static fsdp_status find_index(jinja_machine *machine, const char *name, jinja_value self,
                              const jinja_args *args, bool from_right, bool must_exist,
                              jinja_value *out)
{
    size_t at;
    FSDP_TRY(find_part(machine, name, self, args, from_right, &at));
    if (at == SIZE_MAX) {
        *out = jinja_int(-1);
        return must_exist ? fsdp_error(FSDP_ERR_INVALID, "%s: substring not found", name) : FSDP_OK;
    }
    jinja_string before = {.data = self.as.string->data, .bytes = at, .chars = SIZE_MAX};
    *out = jinja_int((int64_t)fsdp_jinja_chars(&before));
    return FSDP_OK;
}

static fsdp_status find(jinja_machine *machine, jinja_value self, const jinja_args *args,
                        jinja_value *out)
{
    return find_index(machine, "find", self, args, false, false, out);
}

static fsdp_status rfind(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return find_index(machine, "rfind", self, args, true, false, out);
}

static fsdp_status index_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                            jinja_value *out)
{
    return find_index(machine, "index", self, args, false, true, out);
}

static fsdp_status rindex_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                             jinja_value *out)
{
    return find_index(machine, "rindex", self, args, true, true, out);
}

static fsdp_status count(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    jinja_value values[3];
    jinja_string *part, *text = self.as.string;
    size_t at, end;
    int64_t n = 0;
    FSDP_TRY(fsdp_jinja_bind("count", "sub,start,end", 1, args, values));
    FSDP_TRY(need_text("count", values[0], &part));
    FSDP_TRY(slice_bytes("count", text, values + 1, &at, &end));
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 8));
    if (!part->bytes && at <= end) {
        jinja_string slice = {.data = text->data + at, .bytes = end - at, .chars = SIZE_MAX};
        *out = jinja_int((int64_t)fsdp_jinja_chars(&slice) + 1);
        return FSDP_OK;
    }
    while (at <= end) {
        const char *found = memmem(text->data + at, end - at, part->data, part->bytes);
        if (!found)
            break;
        at = (size_t)(found - text->data) + part->bytes;
        n++;
    }
    *out = jinja_int(n);
    return FSDP_OK;
}

/* Set *has to true if the bytes [begin, end) of the text begin with `part` or, if at_end is true,
 * end with it. */
static fsdp_status has_end(const char *name, const jinja_string *text, size_t begin, size_t end,
                           jinja_value part, bool at_end, bool *has)
{
    if (part.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(part);
    if (part.kind != JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "%s: expected a text or a tuple of texts, found %s",
                          name, fsdp_jinja_type_name(part));
    const size_t bytes = part.as.string->bytes;
    *has = begin <= end && bytes <= end - begin &&
           fsdp_jinja_has_at(text, at_end ? end - bytes : begin, part.as.string);
    return FSDP_OK;
}

static fsdp_status starts_or_ends(const char *name, jinja_value self, const jinja_args *args,
                                  bool at_end, jinja_value *out)
{
    jinja_value values[3];
    size_t begin, end;
    bool has = false;
    FSDP_TRY(fsdp_jinja_bind(name, "prefix,start,end", 1, args, values));
    FSDP_TRY(slice_bytes(name, self.as.string, values + 1, &begin, &end));
    if (values[0].kind == JINJA_TUPLE) {
        const jinja_list *list = values[0].as.list;
        for (size_t i = 0; !has && i < list->n; i++)
            FSDP_TRY(has_end(name, self.as.string, begin, end, list->items[i], at_end, &has));
    } else {
        FSDP_TRY(has_end(name, self.as.string, begin, end, values[0], at_end, &has));
    }
    *out = jinja_bool(has);
    return FSDP_OK;
}

static fsdp_status startswith(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    (void)machine;
    return starts_or_ends("startswith", self, args, false, out);
}

static fsdp_status endswith(jinja_machine *machine, jinja_value self, const jinja_args *args,
                            jinja_value *out)
{
    (void)machine;
    return starts_or_ends("endswith", self, args, true, out);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static fsdp_status remove_end(jinja_machine *machine, const char *name, jinja_value self,
                              const jinja_args *args, bool at_end, jinja_value *out)
{
    jinja_value value;
    jinja_string *part;
    bool has;
    const jinja_string *text = self.as.string;
    FSDP_TRY(fsdp_jinja_bind(name, "part", 1, args, &value));
    FSDP_TRY(need_text(name, value, &part));
    FSDP_TRY(has_end(name, text, 0, text->bytes, value, at_end, &has));
    const size_t cut = has ? part->bytes : 0;
    return fsdp_jinja_substring(machine, text->data + (at_end ? 0 : cut), text->bytes - cut, out);
}

static fsdp_status removeprefix(jinja_machine *machine, jinja_value self, const jinja_args *args,
                                jinja_value *out)
{
    return remove_end(machine, "removeprefix", self, args, false, out);
}

static fsdp_status removesuffix(jinja_machine *machine, jinja_value self, const jinja_args *args,
                                jinja_value *out)
{
    return remove_end(machine, "removesuffix", self, args, true, out);
}

static fsdp_status partition_at(jinja_machine *machine, const char *name, jinja_value self,
                                const jinja_args *args, bool from_right, jinja_value *out)
{
    size_t at;
    jinja_value parts[3], list, separator;
    const jinja_string *text = self.as.string;
    FSDP_TRY(fsdp_jinja_bind(name, "sep", 1, args, &separator));
    FSDP_TRY(find_part(machine, name, self, args, from_right, &at));
    const size_t bytes = separator.as.string->bytes;
    if (!bytes)
        return fsdp_error(FSDP_ERR_INVALID, "%s: empty separator", name);
    const bool found = at != SIZE_MAX;
    const size_t left = found ? at : from_right ? 0 : text->bytes;
    const size_t right = found ? at + bytes : left;
    FSDP_TRY(fsdp_jinja_substring(machine, text->data, left, &parts[0]));
    FSDP_TRY(fsdp_jinja_substring(machine, text->data + left, right - left, &parts[1]));
    FSDP_TRY(fsdp_jinja_substring(machine, text->data + right, text->bytes - right, &parts[2]));
    FSDP_TRY(fsdp_jinja_list(machine, 3, &list));
    for (int i = 0; i < 3; i++)
        FSDP_TRY(fsdp_jinja_list_add(machine, list.as.list, parts[i]));
    list.kind = JINJA_TUPLE;
    *out = list;
    return FSDP_OK;
}

static fsdp_status partition(jinja_machine *machine, jinja_value self, const jinja_args *args,
                             jinja_value *out)
{
    return partition_at(machine, "partition", self, args, false, out);
}

static fsdp_status rpartition(jinja_machine *machine, jinja_value self, const jinja_args *args,
                              jinja_value *out)
{
    return partition_at(machine, "rpartition", self, args, true, out);
}

/* ---- padding --------------------------------------------------------------------------------- */

static fsdp_status bind_width(const char *name, const jinja_args *args, int64_t *width,
                              jinja_string **fill)
{
    static jinja_string space = {.data = " ", .bytes = 1, .chars = 1};
    jinja_value values[2];
    FSDP_TRY(fsdp_jinja_bind(name, "width,fillchar", 1, args, values));
    FSDP_TRY(fsdp_jinja_arg_int(name, values[0], 0, width));
    FSDP_TRY(fsdp_jinja_arg_text(name, values[1], &space, fill));
    if (fsdp_jinja_chars(*fill) != 1)
        return fsdp_error(FSDP_ERR_INVALID, "%s: the fill character must be one character", name);
    return FSDP_OK;
}

static fsdp_status pad_to(jinja_machine *machine, const char *name, jinja_value self,
                          const jinja_args *args, bool on_left, jinja_value *out)
{
    int64_t width;
    jinja_string *fill;
    FSDP_TRY(bind_width(name, args, &width, &fill));
    const int64_t chars = (int64_t)fsdp_jinja_chars(self.as.string);
    const size_t n = width > chars ? (size_t)(width - chars) : 0;
    return fsdp_jinja_pad(machine, self.as.string, on_left ? n : 0, on_left ? 0 : n, fill, out);
}

static fsdp_status ljust(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return pad_to(machine, "ljust", self, args, false, out);
}

static fsdp_status rjust(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return pad_to(machine, "rjust", self, args, true, out);
}

static fsdp_status center(jinja_machine *machine, jinja_value self, const jinja_args *args,
                          jinja_value *out)
{
    int64_t width;
    jinja_string *fill;
    FSDP_TRY(bind_width("center", args, &width, &fill));
    return fsdp_jinja_center(machine, self.as.string, width, fill, out);
}

const jinja_method_entry fsdp_jinja_text_methods[] = {
    {"capitalize", capitalize},
    {"casefold", NULL},
    {"center", center},
    {"count", count},
    {"encode", NULL},
    {"endswith", endswith},
    {"expandtabs", NULL},
    {"find", find},
    {"format", NULL},
    {"format_map", NULL},
    {"index", index_of},
    {"isalnum", isalnum_of},
    {"isalpha", isalpha_of},
    {"isascii", isascii_of},
    {"isdecimal", isdecimal_of},
    {"isdigit", isdigit_of},
    {"isidentifier", NULL},
    {"islower", islower_of},
    {"isnumeric", NULL},
    {"isprintable", isprintable},
    {"isspace", isspace_of},
    {"istitle", NULL},
    {"isupper", isupper_of},
    {"join", join},
    {"ljust", ljust},
    {"lower", lower},
    {"lstrip", lstrip},
    {"maketrans", NULL},
    {"partition", partition},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"rfind", rfind},
    {"rindex", rindex_of},
    {"rjust", rjust},
    {"rpartition", rpartition},
    {"rsplit", rsplit},
    {"rstrip", rstrip},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", startswith},
    {"strip", strip},
    {"swapcase", NULL},
    {"title", title},
    {"translate", NULL},
    {"upper", upper},
    {"zfill", NULL},
    {NULL, NULL},
};
