/* See labels.h.
 *
 * Note [Classes from the rows]. A folder such as bert-base-uncased has two classes without names,
 * because this is the default of transformers. If the labels of the rows have more than two
 * classes, or are names, the model gets the classes of the rows. If config.json has names of
 * classes, the model was trained as a classifier. Its classes are then kept, and rows with other
 * names are refused. If the labels of the rows are lists, a row may have several of these classes.
 */
#include "src/train/labels.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/files/data_paths.h"
#include "src/data/files/file_names.h"
#include "src/models/label_names.h"
#include "src/models/model_type.h"
#include "src/pretrained/pretrained.h"

enum {
    SHOWN_NAMES = 20,
    FIRST_ROWS = 1000 /* find_lists() reads this many rows to decide whether labels are lists of
                       * known names */
};

/* The classes of the model, as far as its config.json describes them. */
typedef struct known_labels {
    int64_t classes; /* 0: the model is not a classifier */
    fsdp_problem_type problem_type;
    /* true: at least one class has a name that is not LABEL_<n>, the default of transformers. */
    bool named;
} known_labels;

static bool is_own_name(const char *name)
{
    return name && strncmp(name, "LABEL_", 6) != 0;
}

static fsdp_status read_names(const char *dir, known_labels *known)
{
    char **names = NULL;
    char *path = fsdp_path_join(dir, "config.json");
    fsdp_status status =
        path ? fsdp_label_names_read(path, known->classes, &names) : FSDP_ERR_NOMEM;
    for (int64_t i = 0; names && i < known->classes; i++)
        known->named |= is_own_name(names[i]);
    fsdp_label_names_free(names, known->classes);
    fsdp_free(path);
    return status;
}

static fsdp_status read_known(const fsdp_trainer *t, known_labels *known)
{
    fsdp_pretrained p = {0};
    FSDP_TRY(fsdp_pretrained_open(t->config->model, true, &p));
    const fsdp_model_info info = fsdp_model_config_info(&p.config);
    fsdp_status status = FSDP_OK;
    if (info.format.task == FSDP_TASK_CLASSIFICATION && info.num_labels > 0) {
        known->classes = info.num_labels;
        known->problem_type = info.format.problem_type;
        status = read_names(p.dir, known);
    }
    fsdp_pretrained_close(&p);
    return status;
}

static void print_found(const fsdp_trainer *t, const fsdp_found_labels *found)
{
    if (!t->out)
        return;
    if (found->problem_type == FSDP_PROBLEM_REGRESSION)
        fprintf(t->out, "regression of %lld number%s, from the labels of %s",
                (long long)found->classes, found->classes == 1 ? "" : "s", t->config->data);
    else
        fprintf(t->out, "%lld classes%s, from the labels of %s", (long long)found->classes,
                found->problem_type == FSDP_PROBLEM_MULTI_LABEL ? ", several a row" : "",
                t->config->data);
    for (int64_t i = 0; found->names && i < found->classes && i < SHOWN_NAMES; i++)
        fprintf(t->out, "%s%s", i ? ", " : ": ", found->names[i]);
    fprintf(t->out, "%s", found->names && found->classes > SHOWN_NAMES ? ", ..." : "");
    /* With two classes, the F1 of class 1 is reported, and the order of the names decides which
     * class is class 1. */
    if (found->names && found->classes == 2 && found->problem_type == FSDP_PROBLEM_SINGLE_LABEL)
        fprintf(t->out, "; F1 is that of %s (--class-names gives another order)", found->names[1]);
    fprintf(t->out, "\n");
}

/* Return true if --data exists. For a glob pattern, assume that it matches a file. */
static bool have_data(const fsdp_train_config *c)
{
    return fsdp_path_exists(c->data) || strpbrk(c->data, "*?[");
}

/* Return true if the classes that were found in the rows must replace those of the model's
 * config.json. */
static bool fits_better(const fsdp_found_labels *found, const known_labels *known)
{
    if (!found->classes)
        return false;
    if (found->names || found->problem_type != known->problem_type)
        return true;
    return found->problem_type == FSDP_PROBLEM_SINGLE_LABEL ? found->classes > known->classes
                                                            : found->classes != known->classes;
}

/* Return true if the rows give names to the classes, but config.json and --class-names do not. The
 * run then needs the names of the rows, even if --num-labels was given. */
static bool only_rows_have_names(const fsdp_train_config *c, const known_labels *known,
                                 const fsdp_found_labels *found)
{
    return found->names && !known->named && !c->class_names.count;
}

/* Return an error if there are not as many names as --num-labels says. */
static fsdp_status check_count(const fsdp_train_config *c, const fsdp_found_labels *found)
{
    fsdp_str text = {0};
    if (!c->num_labels || c->num_labels == found->classes)
        return FSDP_OK;
    for (int64_t i = 0; i < found->classes && i < SHOWN_NAMES; i++)
        fsdp_str_printf(&text, "%s%.60s", i ? ", " : "", found->names[i]);
    char *names = fsdp_str_take(&text);
    if (!names)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        fsdp_error(FSDP_ERR_INVALID,
                   "--num-labels is %lld, but the labels of %s have %lld names: %s%s; leave out "
                   "--num-labels, or give all names of the classes with --class-names",
                   (long long)c->num_labels, c->data, (long long)found->classes, names,
                   found->classes > SHOWN_NAMES ? ", ..." : "");
    fsdp_free(names);
    return status;
}

/* Decide whether the run takes its classes from the rows, and clear *labels if it does not. The
 * classes of the rows are used if only the rows have names of classes. Otherwise, they are used
 * only if the user gave neither --num-labels nor --class-names, and they fit better than the
 * model's classes. If the user gave one of these options and rows have several labels, keep
 * labels->problem_type. */
static void choose_labels(const fsdp_train_config *c, const known_labels *known,
                          fsdp_found_labels *labels)
{
    const bool given = c->num_labels || c->class_names.count;
    const fsdp_problem_type type = labels->problem_type;
    /* If the labels do not fit the problem type that the user gave, do not use them here. Reading
     * the rows will return the error, with a message that contains a label that does not fit. */
    const bool differs = c->problem_type && (int)type != c->problem_type - 1;
    if (!differs && only_rows_have_names(c, known, labels))
        return;
    if (!given && !differs && fits_better(labels, known))
        return;
    fsdp_found_labels_fini(labels);
    if (given && !differs && c->num_labels != 1 && type == FSDP_PROBLEM_MULTI_LABEL)
        labels->problem_type = type;
}

/* Return true if the user gave an option that only a classifier has. */
static bool asks_for_classes(const fsdp_train_config *c)
{
    return c->num_labels || c->class_names.count || c->problem_type || c->form.label_column ||
           c->form.text_pair_column;
}

/* Set *any to true if the training rows have labels. For 'fsdp plan', the data need not exist; if
 * they do not exist, decide by the name of the data. */
static fsdp_status rows_have_labels(const fsdp_train_config *c, bool *any)
{
    const fsdp_name_kind kind = fsdp_name_kind_of(c->data);
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION,
                                    .source_column = c->text_column};
    *any = kind == FSDP_NAME_CSV || kind == FSDP_NAME_JSON || kind == FSDP_NAME_ARROW;
    if (!have_data(c))
        return FSDP_OK;
    fsdp_form_options_apply(&c->form, &options);
    return fsdp_labels_exist(c->data, &options, any);
}

fsdp_status fsdp_train_choose_head(fsdp_trainer *t)
{
    const fsdp_train_config *c = t->config;
    fsdp_pretrained p = {0};
    bool labels = true;
    if (c->task != FSDP_TRAIN_AUTO)
        return FSDP_OK;
    FSDP_TRY(fsdp_pretrained_open(c->model, true, &p));
    const bool has_head = p.config.type == &fsdp_bert_classifier_type && p.config.bert.has_lm_head;
    fsdp_pretrained_close(&p);
    if (!has_head)
        return FSDP_OK;
    if (!asks_for_classes(c))
        FSDP_TRY(rows_have_labels(c, &labels));
    t->keeps_lm_head = !labels;
    if (t->out && labels)
        fprintf(t->out,
                "%s is a BertForMaskedLM, but the rows have labels, so it becomes a classifier "
                "(with --task masked-lm, it stays a masked language model)\n",
                c->model);
    else if (t->out)
        fprintf(
            t->out,
            "%s is a BertForMaskedLM, and the rows have no labels, so the task is masked-lm (with "
            "--task classification, it becomes a classifier)\n",
            c->model);
    return FSDP_OK;
}

/* Refuse plain text and token files, which have no labels. */
static fsdp_status check_form(const fsdp_train_config *c)
{
    const bool plain = fsdp_is_plain_text_name(c->data);
    if (!plain && !fsdp_name_ends_with(c->data, ".bin"))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s is %s, and rows for classification have labels (CSV, JSON or Arrow); "
                      "--task masked-lm trains a masked language model on it",
                      c->data, plain ? "plain text" : "a token file");
}

/* Set found->problem_type if the classes of config.json have names, and the labels of the first
 * rows are lists of these names. A label that cannot be read is reported when the rows are
 * opened. */
static fsdp_status find_lists(const fsdp_trainer *t, const known_labels *known,
                              const fsdp_dataset_options *options, fsdp_found_labels *found)
{
    const fsdp_train_config *c = t->config;
    fsdp_dataset_options first = *options;
    fsdp_found_labels labels = {0};
    if (c->problem_type || known->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        return FSDP_OK;
    if (first.max_samples <= 0 || first.max_samples > FIRST_ROWS)
        first.max_samples = FIRST_ROWS;
    const fsdp_status status = fsdp_labels_find(c->data, &first, &labels);
    if (status == FSDP_OK && labels.problem_type == FSDP_PROBLEM_MULTI_LABEL) {
        found->problem_type = FSDP_PROBLEM_MULTI_LABEL;
        fsdp_trainer_print(t,
                           "the labels of %s are lists: a row may have several of the %lld classes "
                           "of config.json",
                           c->data, (long long)known->classes);
    }
    fsdp_found_labels_fini(&labels);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

fsdp_status fsdp_train_find_labels(const fsdp_trainer *t, fsdp_found_labels *found)
{
    const fsdp_train_config *c = t->config;
    const bool given = c->num_labels || c->class_names.count;
    known_labels known = {0};
    if (c->task != FSDP_TRAIN_AUTO && c->task != FSDP_TRAIN_CLASSIFICATION)
        return FSDP_OK;
    if (t->keeps_lm_head || (given && c->problem_type) || !have_data(c))
        return FSDP_OK;
    FSDP_TRY(read_known(t, &known));
    if (!known.classes)
        return FSDP_OK;
    FSDP_TRY(check_form(c));
    const int asked = c->problem_type ? c->problem_type - 1 : (int)known.problem_type;
    fsdp_found_labels labels;
    fsdp_dataset_options options = {.task = FSDP_TASK_CLASSIFICATION,
                                    .source_column = c->text_column,
                                    .problem_type = (fsdp_problem_type)asked,
                                    .max_samples = c->max_train_samples};
    fsdp_form_options_apply(&c->form, &options);
    if (known.named && !given)
        return find_lists(t, &known, &options, found);
    FSDP_TRY(fsdp_labels_find(c->data, &options, &labels));
    choose_labels(c, &known, &labels);
    const fsdp_status status = labels.names ? check_count(c, &labels) : FSDP_OK;
    if (status != FSDP_OK) {
        fsdp_found_labels_fini(&labels);
        return status;
    }
    *found = labels;
    if (found->classes)
        print_found(t, found);
    return FSDP_OK;
}
