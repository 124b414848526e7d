/* Reads a YAML file into a tree (yaml_tree.h). */
#include "src/accelerate/yaml_tree.h"

#ifdef FSDP_HAVE_YAML
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/options/yaml_value.h"

enum {
    MAX_DEPTH = 16,
    MAX_NODES = 10000 /* a limit is needed, because aliases can multiply nodes */
};

typedef struct tree_reader {
    const char *path;
    yaml_document_t document;
    int nodes;
} tree_reader;

static fsdp_status convert(tree_reader *r, const yaml_node_t *node, int depth, fsdp_yaml *out);

static fsdp_status malformed(const tree_reader *r, const yaml_node_t *node, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s:%d: %s", r->path,
                      node ? (int)node->start_mark.line + 1 : 0, what);
}

static fsdp_status copy_text(const tree_reader *r, const yaml_node_t *node, char **text)
{
    const char *value = (const char *)node->data.scalar.value;
    if (strlen(value) != node->data.scalar.length)
        return malformed(r, node, "a value holds a NUL byte");
    *text = fsdp_strdup(value);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status add_item(tree_reader *r, const yaml_node_t *node, int depth, fsdp_yaml *out,
                            fsdp_yaml **item)
{
    if (!node)
        return malformed(r, NULL, "a value is missing");
    if (!FSDP_GROW(out->items, out->cap, out->n + 1))
        return FSDP_ERR_NOMEM;
    *item = &out->items[out->n];
    **item = (fsdp_yaml){0};
    fsdp_status status = convert(r, node, depth + 1, *item);
    if (status == FSDP_OK)
        out->n++;
    else
        fsdp_yaml_fini(*item);
    return status;
}

static fsdp_status convert_list(tree_reader *r, const yaml_node_t *node, int depth, fsdp_yaml *out)
{
    fsdp_yaml *item;
    for (const yaml_node_item_t *i = node->data.sequence.items.start;
         i < node->data.sequence.items.top; i++)
        FSDP_TRY(add_item(r, yaml_document_get_node(&r->document, *i), depth, out, &item));
    return FSDP_OK;
}

static fsdp_status convert_map(tree_reader *r, const yaml_node_t *node, int depth, fsdp_yaml *out)
{
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&r->document, pair->key);
        fsdp_yaml *item;
        char *name = NULL;
        if (!key || key->type != YAML_SCALAR_NODE)
            return malformed(r, key ? key : node, "a key is not a name");
        if (fsdp_yaml_is_merge_key(key))
            return malformed(r, key, fsdp_yaml_merge_unsupported);
        if (fsdp_yaml_find(out, (const char *)key->data.scalar.value))
            return malformed(r, key, "a key is given twice");
        FSDP_TRY(copy_text(r, key, &name));
        fsdp_status status =
            add_item(r, yaml_document_get_node(&r->document, pair->value), depth, out, &item);
        if (status != FSDP_OK) {
            fsdp_free(name);
            return status;
        }
        item->key = name;
        item->line = (int)key->start_mark.line + 1;
    }
    return FSDP_OK;
}

static fsdp_status convert(tree_reader *r, const yaml_node_t *node, int depth, fsdp_yaml *out)
{
    if (depth > MAX_DEPTH || ++r->nodes > MAX_NODES)
        return malformed(r, node, "more values, or deeper ones, than any configuration has");
    out->line = (int)node->start_mark.line + 1;
    if (node->type == YAML_SEQUENCE_NODE) {
        out->kind = FSDP_YAML_LIST;
        return convert_list(r, node, depth, out);
    }
    if (node->type == YAML_MAPPING_NODE) {
        out->kind = FSDP_YAML_MAP;
        return convert_map(r, node, depth, out);
    }
    out->kind = FSDP_YAML_SCALAR;
    out->quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return copy_text(r, node, &out->text);
}

static fsdp_status parser_error(const tree_reader *r, const yaml_parser_t *parser)
{
    const bool has_next = parser->buffer.pointer < parser->buffer.last;
    if (parser->error == YAML_MEMORY_ERROR)
        return fsdp_error_nomem();
    return fsdp_error(
        FSDP_ERR_FORMAT, "%s:%zu: %s", r->path, parser->problem_mark.line + 1,
        fsdp_yaml_problem(parser->problem, has_next ? (char)*parser->buffer.pointer : 0));
}

/* Return FSDP_ERR_FORMAT if a second document follows in the file. */
static fsdp_status check_end(tree_reader *r, yaml_parser_t *parser)
{
    if (!yaml_parser_load(parser, &r->document))
        return parser_error(r, parser);
    const yaml_node_t *node = yaml_document_get_root_node(&r->document);
    const fsdp_status status = node ? malformed(r, node, "a second document begins") : FSDP_OK;
    yaml_document_delete(&r->document);
    return status;
}

static fsdp_status read_document(tree_reader *r, yaml_parser_t *parser, fsdp_yaml *root)
{
    if (!yaml_parser_load(parser, &r->document))
        return parser_error(r, parser);
    const yaml_node_t *node = yaml_document_get_root_node(&r->document);
    fsdp_status status =
        node && node->type == YAML_MAPPING_NODE
            ? convert(r, node, 0, root)
            : fsdp_error(FSDP_ERR_FORMAT, "%s: expected 'key: value' lines", r->path);
    yaml_document_delete(&r->document);
    return status == FSDP_OK ? check_end(r, parser) : status;
}

static fsdp_status read_file(tree_reader *r, FILE *file, fsdp_yaml *root)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return fsdp_error_nomem();
    yaml_parser_set_input_file(&parser, file);
    const fsdp_status status = read_document(r, &parser, root);
    yaml_parser_delete(&parser);
    return status;
}

fsdp_status fsdp_yaml_read(const char *path, fsdp_yaml *out)
{
    tree_reader reader = {.path = path};
    fsdp_yaml root = {0};
    FILE *file = fsdp_path_is_directory(path) ? NULL : fopen(path, "rbe");
    if (!file)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: %s", path,
                          fsdp_path_is_directory(path) ? "a directory, not a YAML file"
                                                       : strerror(errno));
    fsdp_status status = read_file(&reader, file, &root);
    fclose(file);
    if (status == FSDP_OK)
        *out = root;
    else
        fsdp_yaml_fini(&root);
    return status;
}

#else

fsdp_status fsdp_yaml_read(const char *path, fsdp_yaml *root)
{
    (void)root;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: this program was built without libyaml ('make deps' gets it)", path);
}

#endif
