/* See arrow_note.h. */
#include "src/data/arrow/arrow_note.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"

/* Return the model's name of a class, or NULL if the model has no name for the class. If a model
 * has no names, transformers names its classes LABEL_0, LABEL_1, ..., so such names do not count.
 */
static const char *name_of_class(const fsdp_dataset_options *o, size_t class)
{
    const char *name =
        o->class_names && (int64_t) class < o->num_classes ? o->class_names[class] : NULL;
    return name && strncmp(name, "LABEL_", 6) != 0 ? name : NULL;
}

/* Append the names of the classes of a ClassLabel column, unless the model has the same names for
 * its classes. */
static void describe_classes(const fsdp_arrow_table *table, const char *column,
                             const fsdp_dataset_options *o, fsdp_str *text)
{
    const fsdp_json_node names = fsdp_arrow_table_class_names(table, column);
    const size_t n = fsdp_json_len(names);
    bool same = n > 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = NULL, *own = name_of_class(o, i);
        if (fsdp_json_get_str(fsdp_json_at(names, i), NULL, &name) != FSDP_OK)
            return;
        same &= own && strcmp(own, name) == 0;
    }
    if (n == 0 || same)
        return;
    fsdp_str_printf(text, "%s: classes of '%s':", fsdp_arrow_table_folder(table)->path, column);
    for (size_t i = 0; i < n && i < FSDP_MAX_UNUSED_KEYS; i++) {
        const char *name = "", *own = name_of_class(o, i);
        if (fsdp_json_get_str(fsdp_json_at(names, i), NULL, &name) == FSDP_OK)
            fsdp_str_printf(text, "%s %zu '%.40s'", i ? "," : "", i, name);
        if (own && strcmp(own, name) != 0)
            fsdp_str_printf(text, ", which the model calls '%.40s'", own);
    }
    fsdp_str_printf(text, "%s", n > FSDP_MAX_UNUSED_KEYS ? ", ..." : "");
}

static void add_line(fsdp_str *text, const char *line)
{
    if (line && *line)
        fsdp_str_printf(text, "%s%s", text->len ? "\n" : "", line);
}

fsdp_status fsdp_arrow_note(const fsdp_arrow_table *table, const fsdp_unused_keys *unused,
                            const char *label, const fsdp_dataset_options *options, char **note)
{
    const fsdp_arrow_folder *folder = fsdp_arrow_table_folder(table);
    fsdp_str text = {0}, classes = {0};
    char *columns = NULL;
    *note = NULL;
    FSDP_TRY(
        fsdp_unused_columns_note(unused, fsdp_arrow_table_left_out(table), folder->path, &columns));
    add_line(&text, columns);
    fsdp_free(columns);
    if (options->task == FSDP_TASK_CLASSIFICATION)
        describe_classes(table, label, options, &classes);
    add_line(&text, classes.data);
    text.failed |= classes.failed;
    fsdp_str_fini(&classes);
    if (folder->split && strcmp(folder->split, "test") == 0)
        fsdp_str_printf(&text, "%s%s: the split 'test' is used, as there is none for validation",
                        text.len ? "\n" : "", folder->path);
    if (!text.len && !text.failed)
        return FSDP_OK;
    return (*note = fsdp_str_take(&text)) ? FSDP_OK : FSDP_ERR_NOMEM;
}
