/* Reads the YAML file of --config. Its keys are option names. A key whose value is a map is only a
 * heading; the options are the keys in that map. A sequence is the value of a list option. null
 * leaves an option unchanged. */
#include "src/options/options_parse.h"

#ifdef FSDP_HAVE_YAML
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/nearest.h"
#include "src/options/yaml_value.h"

enum {
    MAX_DEPTH = 16,
    MAX_PAIRS = 10000, /* maximum number of pairs (key and value); nested aliases can multiply
                          them */
    HEAD_BYTES = 512   /* number of bytes at the start of a file that explain_file() examines */
};

typedef struct yaml_reader {
    fsdp_options *options;
    void *target;
    const char *path;
    yaml_document_t document;
    int pairs; /* number of pairs read so far */
    int *seen; /* [spec->count] line of each option in this file; 0: the option has not occurred
                  yet */
} yaml_reader;

static int line_of(const yaml_node_t *node)
{
    return (int)node->start_mark.line + 1;
}

/* Return the text of a scalar, or NULL if it contains a NUL byte. */
static const char *scalar_text(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

static bool is_null(const yaml_node_t *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    const char *text = (const char *)node->data.scalar.value;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

/* Set *out to a copy of the text of a scalar. The options own the copy. */
static fsdp_status own_scalar(yaml_reader *r, const yaml_node_t *node, const char **out)
{
    const char *text = scalar_text(node);
    if (!text)
        return fsdp_error(FSDP_ERR_FORMAT, "%s:%d: the value holds a NUL byte", r->path,
                          line_of(node));
    *out = fsdp_options_own(r->options, fsdp_strdup(text));
    return *out ? FSDP_OK : fsdp_error_nomem();
}

static fsdp_status read_items(yaml_reader *r, const yaml_node_t *node, fsdp_option_given *given)
{
    const yaml_node_item_t *item = node->data.sequence.items.start;
    size_t count = (size_t)(node->data.sequence.items.top - item);
    const char **items = fsdp_options_own(r->options, fsdp_calloc(count, sizeof *items));
    if (!items)
        return fsdp_error_nomem();
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *child = yaml_document_get_node(&r->document, item[i]);
        if (!child || child->type != YAML_SCALAR_NODE)
            return fsdp_error(FSDP_ERR_INVALID, "%s:%d: %s: items of a list are plain values",
                              r->path, child ? line_of(child) : line_of(node), given->key);
        FSDP_TRY(own_scalar(r, child, &items[i]));
    }
    given->items = items;
    given->n_items = count;
    return FSDP_OK;
}

/* Return the index of the option that a key in `section` means, as fsdp_options_find() does.
 * `section` may be NULL. */
static int find_option(const yaml_reader *r, const fsdp_options_section *section, const char *name,
                       bool *negated)
{
    char whole[OPTION_NAME_BYTES];
    if (section && section->prefix &&
        strncmp(name, section->prefix, strlen(section->prefix)) != 0) {
        const int n = snprintf(whole, sizeof whole, "%s%s", section->prefix, name);
        const int index =
            n < (int)sizeof whole ? fsdp_options_find(r->options->spec, whole, negated) : -1;
        if (index >= 0)
            return index;
    }
    return fsdp_options_find(r->options->spec, name, negated);
}

/* Return true if the key is the name of a section, whose value must be a map. */
static bool is_section(const yaml_reader *r, const yaml_node_t *key)
{
    const fsdp_options_spec *spec = r->options->spec;
    const char *name = scalar_text(key);
    for (size_t i = 0; name && i < spec->n_sections; i++)
        if (strcmp(name, spec->sections[i].name) == 0)
            return true;
    return false;
}

/* Return the error for an unknown key. In a section, the key may lack the prefix of the option that
 * it probably means. */
static fsdp_status unknown_key(const yaml_reader *r, const fsdp_options_section *section,
                               const char *name)
{
    const fsdp_options_spec *spec = r->options->spec;
    char whole[OPTION_NAME_BYTES], near[OPTION_NAME_BYTES];
    if (!section || !section->prefix || fsdp_options_nearest(spec, name, near) >= 0)
        return fsdp_options_unknown(spec, "", name);
    const int n = snprintf(whole, sizeof whole, "%s%s", section->prefix, name);
    const bool is_near = n < (int)sizeof whole && fsdp_options_nearest(spec, whole, near) >= 0;
    return fsdp_options_unknown(spec, "", is_near ? whole : name);
}

/* Set *text to the text of an option's value. PyYAML reads texts such as 1_000 and 0x2 as integers.
 * If the value is such an integer, *text is the decimal number, because the parser of flags expects
 * that form. If the option takes a string, such as the name of a run, the text is not changed. */
static fsdp_status read_value(yaml_reader *r, int index, const yaml_node_t *node, const char **text)
{
    int64_t value;
    FSDP_TRY(own_scalar(r, node, text));
    if (r->options->spec->table[index].type == FSDP_OPTION_STRING ||
        node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
        !fsdp_yaml_integer(*text, &value))
        return FSDP_OK;
    *text = fsdp_options_own(r->options, fsdp_strdup_printf("%lld", (long long)value));
    return *text ? FSDP_OK : fsdp_error_nomem();
}

static fsdp_status read_option(yaml_reader *r, const fsdp_options_section *section,
                               const yaml_node_t *key, const yaml_node_t *value)
{
    const char *name = scalar_text(key);
    bool negated;
    int index = name ? find_option(r, section, name, &negated) : -1;
    int line = line_of(key);
    if (index < 0 && is_section(r, key))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s:%d: %s: takes 'key: value' lines of its own, not a %s", r->path, line,
                          name, value->type == YAML_SEQUENCE_NODE ? "list" : "single value");
    if (index < 0) {
        fsdp_status status = unknown_key(r, section, name ? name : "");
        fsdp_error_context(status, "%s:%d", r->path, line);
        return status;
    }
    if (r->seen[index])
        return fsdp_error(FSDP_ERR_INVALID, "%s:%d: %s was already given on line %d", r->path, line,
                          name, r->seen[index]);
    r->seen[index] = line;
    if (is_null(value))
        return FSDP_OK;
    fsdp_option_given given = {.index = index, .negated = negated, .origin = FSDP_ORIGIN_FILE};
    given.key = fsdp_options_own(r->options, fsdp_strdup(name));
    given.where = fsdp_options_own(r->options, fsdp_strdup_printf("%s:%d", r->path, line));
    if (!given.where || !given.key)
        return fsdp_error_nomem();
    if (value->type == YAML_SEQUENCE_NODE) {
        FSDP_TRY(read_items(r, value, &given));
    } else {
        FSDP_TRY(read_value(r, index, value, &given.text));
    }
    return fsdp_options_set(r->options, r->target, &given);
}

/* Set *section to the section whose name is `key`, the key of the map `map`. If the section has
 * `instead` set, the map must be empty. If no section has this name, the map is allowed only if
 * spec->sections is NULL or spec->other_sections is set; in this case, *section is set to NULL. */
static fsdp_status find_section(const yaml_reader *r, const yaml_node_t *key,
                                const yaml_node_t *map, const fsdp_options_section **section)
{
    const fsdp_options_spec *spec = r->options->spec;
    const char *name = scalar_text(key);
    *section = NULL;
    for (size_t i = 0; name && i < spec->n_sections && !*section; i++)
        if (strcmp(name, spec->sections[i].name) == 0)
            *section = &spec->sections[i];
    if (!spec->sections || (*section && (!(*section)->instead || map->data.mapping.pairs.start ==
                                                                     map->data.mapping.pairs.top)))
        return FSDP_OK;
    if (*section)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s:%d: %s: not supported: %s", r->path,
                          line_of(key), name, (*section)->instead);
    if (spec->other_sections)
        return FSDP_OK;
    const char *names[16];
    FSDP_ASSERT(spec->n_sections <= FSDP_LENGTH(names));
    for (size_t i = 0; i < spec->n_sections; i++)
        names[i] = spec->sections[i].name;
    const int near = fsdp_nearest_name(name ? name : "", names, spec->n_sections);
    return fsdp_error(FSDP_ERR_INVALID, "%s:%d: unknown map '%.100s'%s%s%s", r->path, line_of(key),
                      name ? name : "", near < 0 ? "" : "; did you mean '",
                      near < 0 ? "" : names[near], near < 0 ? "" : "'?");
}

/* Read a map and, recursively, the maps in it. `section` describes the map; NULL means that no
 * section of the spec describes it, so its keys have no prefix. `depth` is limited, because a map
 * may contain an alias of itself, and the recursion would then not end. */
static fsdp_status read_map(yaml_reader *r, const fsdp_options_section *section,
                            const yaml_node_t *map, int depth)
{
    if (depth > MAX_DEPTH)
        return fsdp_error(FSDP_ERR_FORMAT, "%s:%d: maps are nested more than %d deep", r->path,
                          line_of(map), MAX_DEPTH);
    for (const yaml_node_pair_t *pair = map->data.mapping.pairs.start;
         pair < map->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&r->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&r->document, pair->value);
        if (++r->pairs > MAX_PAIRS)
            return fsdp_error(FSDP_ERR_FORMAT, "%s:%d: more than %d keys", r->path, line_of(map),
                              MAX_PAIRS);
        if (!key || !value || key->type != YAML_SCALAR_NODE)
            return fsdp_error(FSDP_ERR_FORMAT, "%s:%d: a key is not a name", r->path,
                              key ? line_of(key) : line_of(map));
        const fsdp_options_section *inner = NULL;
        if (fsdp_yaml_is_merge_key(key))
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s:%d: %s", r->path, line_of(key),
                              fsdp_yaml_merge_unsupported);
        if (is_null(value) && is_section(r, key))
            continue;
        if (value->type == YAML_MAPPING_NODE) {
            FSDP_TRY(find_section(r, key, value, &inner));
            FSDP_TRY(read_map(r, inner, value, depth + 1));
        } else {
            FSDP_TRY(read_option(r, section, key, value));
        }
    }
    return FSDP_OK;
}

static fsdp_status parser_error(const yaml_parser_t *parser, const char *path)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return fsdp_error_nomem();
    if (parser->error == YAML_READER_ERROR)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: byte %zu: %s", path, parser->problem_offset,
                          parser->problem ? parser->problem : "not readable as YAML");
    const bool has_next = parser->buffer.pointer < parser->buffer.last;
    return fsdp_error(
        FSDP_ERR_FORMAT, "%s:%zu: %s", path, parser->problem_mark.line + 1,
        fsdp_yaml_problem(parser->problem, has_next ? (char)*parser->buffer.pointer : 0));
}

/* Read a YAML file, which must not contain more than one document. An empty file counts as an empty
 * map. */
static fsdp_status read_document(yaml_reader *r, yaml_parser_t *parser)
{
    if (!yaml_parser_load(parser, &r->document))
        return parser_error(parser, r->path);
    fsdp_status status = FSDP_OK;
    const yaml_node_t *root = yaml_document_get_root_node(&r->document);
    if (root && root->type == YAML_MAPPING_NODE)
        status = read_map(r, NULL, root, 1);
    else if (root && !is_null(root))
        status = fsdp_error(FSDP_ERR_FORMAT, "%s:%d: expected 'option: value' lines", r->path,
                            line_of(root));
    yaml_document_delete(&r->document);
    if (status != FSDP_OK || !root)
        return status;
    if (!yaml_parser_load(parser, &r->document))
        return parser_error(parser, r->path);
    root = yaml_document_get_root_node(&r->document);
    if (root)
        status =
            fsdp_error(FSDP_ERR_FORMAT, "%s:%d: a second document begins", r->path, line_of(root));
    yaml_document_delete(&r->document);
    return status;
}

/* If `status` is FSDP_ERR_FORMAT and the file is recognized as a file of another kind (not YAML),
 * return an error that names this kind. Otherwise return `status`. */
static fsdp_status explain_file(fsdp_status status, FILE *file, const char *path)
{
    char head[HEAD_BYTES];
    if (status != FSDP_ERR_FORMAT || fseek(file, 0, SEEK_SET) != 0)
        return status;
    const size_t n = fread(head, 1, sizeof head, file);
    const fsdp_status other =
        n ? fsdp_file_explain(path, "YAML", FSDP_WANTED_TEXT, head, n) : FSDP_OK;
    return other == FSDP_OK ? status : other;
}

/* Read the options from `file`. If `file` is NULL, r->path is not a path but the YAML text
 * itself. */
static fsdp_status read_options(yaml_reader *r, FILE *file)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return fsdp_error_nomem();
    if (file) {
        yaml_parser_set_input_file(&parser, file);
    } else {
        yaml_parser_set_input_string(&parser, (const unsigned char *)r->path, strlen(r->path));
        r->path = "--config {...}";
    }
    fsdp_status status = read_document(r, &parser);
    yaml_parser_delete(&parser);
    return status;
}

fsdp_status fsdp_options_read_yaml(fsdp_options *options, void *target, const char *path)
{
    yaml_reader reader = {.options = options, .target = target, .path = path};
    const bool is_text = path[0] == '{';
    FILE *file = is_text ? NULL : fopen(path, "rb");
    if (file && fsdp_path_is_directory(path)) {
        fclose(file);
        return fsdp_error(FSDP_ERR_INVALID, "--%s %s: a directory, not a YAML file",
                          options->file_flag, path);
    }
    if (!file && !is_text)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "--%s %s: %s",
                          options->file_flag, path, strerror(errno));
    reader.seen = fsdp_calloc(options->spec->count, sizeof *reader.seen);
    fsdp_status status = reader.seen ? read_options(&reader, file) : fsdp_error_nomem();
    if (file) {
        status = explain_file(status, file, path);
        fclose(file);
    }
    fsdp_free(reader.seen);
    return status;
}

#else

fsdp_status fsdp_options_read_yaml(fsdp_options *options, void *target, const char *path)
{
    (void)target;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "--%s %s: this program was built without libyaml ('make deps' gets it)%s",
                      options->file_flag, path,
                      options->spec->default_config ? "; --config none reads no file" : "");
}

#endif
