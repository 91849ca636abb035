// What is not done right is told: null pointers, handles of another kind, closed engines, a session that
// is in use, constants that are none.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ancile.h"

static int checks;

// A call that must fail, with this status and a sentence that has these words.
#define REFUSED(wanted, words, call)                                                       \
  do {                                                                                     \
    ancile_error *error = NULL;                                                            \
    const ancile_status status = (call);                                                   \
    const char *sentence = ancile_error_message(error);                                    \
    if (status != (wanted) || ancile_error_status(error) != (wanted) ||                    \
        !strstr(sentence, words)) {                                                        \
      fprintf(stderr, "line %d: status %d, \"%s\"\n", __LINE__, (int)status, sentence);    \
      exit(EXIT_FAILURE);                                                                  \
    }                                                                                      \
    ancile_error_free(error);                                                              \
    ++checks;                                                                              \
  } while (0)

// A call that must succeed, and a condition that must hold.
#define DONE(call)                                                                         \
  do {                                                                                     \
    ancile_error *error = NULL;                                                            \
    if ((call) != ANCILE_STATUS_OK) {                                                      \
      fprintf(stderr, "line %d: %s\n", __LINE__, ancile_error_message(error));             \
      exit(EXIT_FAILURE);                                                                  \
    }                                                                                      \
    ++checks;                                                                              \
  } while (0)
#define HOLDS(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                              \
      exit(EXIT_FAILURE);                                                                  \
    }                                                                                      \
    ++checks;                                                                              \
  } while (0)

struct scan {
  ancile_session *session;
  const ancile_table *table;
  int visits;
};

// Uses the session that called it.
static bool reenter(void *context, uint64_t id, const uint64_t *row, size_t columns) {
  struct scan *scan = context;
  uint64_t rows = 0;
  REFUSED(ANCILE_STATUS_BUSY, "in use", ancile_count(scan->session, scan->table, &rows, &error));
  HOLDS(row[0] == id && columns == 2);
  ++scan->visits;
  return false;
}

static void refuse_what_is_null(void) {
  ancile_builder *builder = ancile_builder_new();
  ancile_engine *engine = NULL;
  REFUSED(ANCILE_STATUS_MISUSE, "builder", ancile_builder_open(NULL, NULL, &engine, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "engine", ancile_builder_open(builder, NULL, NULL, &error));
  HOLDS(ancile_builder_open(NULL, NULL, NULL, NULL) == ANCILE_STATUS_MISUSE);
  HOLDS(ancile_builder_durability(builder, 99, 0) == ANCILE_STATUS_MISUSE);
  HOLDS(ancile_builder_shards(NULL, 1) == ANCILE_STATUS_MISUSE);
  REFUSED(ANCILE_STATUS_MISUSE, "is no engine",
          ancile_engine_close((ancile_engine *)builder, &error));
  ancile_builder_free(builder);

  ancile_builder_free(NULL);
  ancile_engine_free(NULL);
  ancile_session_free(NULL);
  ancile_table_free(NULL);
  ancile_globals_free(NULL);
  ancile_key_free(NULL);
  ancile_error_free(NULL);
  ancile_bytes_free(NULL);
  HOLDS(ancile_error_status(NULL) == ANCILE_STATUS_OK && !*ancile_error_message(NULL));
  HOLDS(ancile_table_columns(NULL) == 0 && !ancile_table_is_keyed(NULL));
  HOLDS(ancile_key_subscripts(NULL) == 0 && !ancile_key_pop(NULL));
}

static void refuse_what_does_not_fit(ancile_engine *engine, ancile_session *session,
                                     ancile_table *table) {
  const uint64_t row[] = {7, 1};
  uint64_t place, copy[2];
  bool found;
  REFUSED(ANCILE_STATUS_MISUSE, "no session",
          ancile_insert_keyed(NULL, table, 7, row, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "no table", ancile_insert_keyed(session, NULL, 7, row, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "is no table",
          ancile_insert_keyed(session, (ancile_table *)session, 7, row, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "row", ancile_insert_keyed(session, table, 7, NULL, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "row",
          ancile_insert_keyed(session, table, 7, (const uint64_t *)((const char *)row + 1), &error));
  REFUSED(ANCILE_STATUS_KEYED, "keyed", ancile_insert(session, table, row, &place, &error));
  DONE(ancile_insert_keyed(session, table, 7, row, &error));
  REFUSED(ANCILE_STATUS_DUPLICATE, "7", ancile_insert_keyed(session, table, 7, row, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "no way",
          ancile_select(session, table, 5, 7, copy, &found, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "found",
          ancile_select(session, table, ANCILE_BY_KEY, 7, copy, NULL, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "so many",
          ancile_insert_batch(session, table, row, SIZE_MAX, NULL, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "longer",
          ancile_delete_batch(session, table, ANCILE_BY_KEY, row, SIZE_MAX, NULL, &error));
  const size_t column = 2;
  REFUSED(ANCILE_STATUS_COLUMN, "column 2",
          ancile_update_columns(session, table, ANCILE_BY_KEY, 7, &column, row, 1, &found, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "function",
          ancile_scan(session, table, ANCILE_BY_KEY, NULL, NULL, &error));
  struct scan scan = {session, table, 0};
  DONE(ancile_scan(session, table, ANCILE_BY_KEY, reenter, &scan, &error));
  HOLDS(scan.visits == 1);

  ancile_table *other = NULL;
  REFUSED(ANCILE_STATUS_TABLE_EXISTS, "exists",
          ancile_engine_create_table(engine, "table", 2, true, 0, &other, &error));
  REFUSED(ANCILE_STATUS_SCHEMA, "columns",
          ancile_engine_create_table(engine, "wide", SIZE_MAX, true, 0, &other, &error));
  REFUSED(ANCILE_STATUS_SCHEMA, "columns",
          ancile_engine_create_table(engine, "narrow", 0, true, 0, &other, &error));
  REFUSED(ANCILE_STATUS_TABLE_MISSING, "nowhere",
          ancile_engine_open_table(engine, "nowhere", &other, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "UTF-8",
          ancile_engine_open_table(engine, "\xff", &other, &error));
  HOLDS(other == NULL);
}

static void refuse_what_a_transaction_has_not(ancile_session *session, ancile_table *table) {
  uint64_t rows;
  size_t savepoint;
  REFUSED(ANCILE_STATUS_NO_TRANSACTION, "no transaction", ancile_commit(session, &error));
  REFUSED(ANCILE_STATUS_NO_TRANSACTION, "no transaction", ancile_roll_back(session, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "isolation", ancile_begin(session, 9, 0, &error));
  DONE(ancile_begin(session, ANCILE_SERIALIZABLE, 0, &error));
  REFUSED(ANCILE_STATUS_IN_TRANSACTION, "open",
          ancile_begin(session, ANCILE_SERIALIZABLE, 0, &error));
  REFUSED(ANCILE_STATUS_IN_TRANSACTION, "open", ancile_count(session, table, &rows, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "savepoint", ancile_roll_back_to(session, 0, &error));
  DONE(ancile_savepoint(session, &savepoint, &error));
  DONE(ancile_roll_back_to(session, savepoint, &error));
  DONE(ancile_roll_back(session, &error));
}

static void refuse_keys_that_are_none(ancile_session *session, ancile_globals *globals) {
  ancile_key *key = NULL;
  bool found;
  REFUSED(ANCILE_STATUS_KEY, "name", ancile_key_new("", &key, &error));
  DONE(ancile_key_new("name", &key, &error));
  REFUSED(ANCILE_STATUS_KEY, "digits", ancile_key_push_integer(key, INT64_MAX, &error));
  REFUSED(ANCILE_STATUS_MISUSE, "subscript", ancile_key_push_bytes(key, NULL, 3, &error));
  ancile_bytes bytes = {0};
  REFUSED(ANCILE_STATUS_MISUSE, "subscript 1", ancile_key_subscript(key, 1, &bytes, &error));
  DONE(ancile_key_subscript(key, 0, &bytes, &error));
  HOLDS(bytes.length == 4 && !strcmp((const char *)bytes.data, "name"));
  DONE(ancile_key_subscript(key, 0, &bytes, &error));  // In the place of the first ones.
  ancile_bytes_free(&bytes);
  HOLDS(!bytes.data && !bytes.length);
  REFUSED(ANCILE_STATUS_MISUSE, "no step",
          ancile_globals_step(session, globals, 9, key, &found, &error));
  ancile_key_free(key);
}

int main(void) {
  refuse_what_is_null();

  ancile_builder *builder = ancile_builder_new();
  ancile_builder_shards(builder, 2);
  ancile_engine *engine = NULL;
  ancile_builder_arena_bytes(builder, 1);
  REFUSED(ANCILE_STATUS_SETTING, "arena_bytes", ancile_builder_open(builder, NULL, &engine, &error));
  ancile_builder_arena_bytes(builder, 64 << 20);
  DONE(ancile_builder_open(builder, NULL, &engine, &error));
  ancile_builder_free(builder);
  ancile_table *table = NULL;
  DONE(ancile_engine_create_table(engine, "table", 2, true, 0, &table, &error));
  HOLDS(ancile_table_columns(table) == 2 && ancile_table_is_keyed(table));
  ancile_globals *globals = NULL;
  DONE(ancile_engine_globals(engine, &globals, &error));
  ancile_session *session = NULL;
  DONE(ancile_engine_session(engine, &session, &error));

  refuse_what_does_not_fit(engine, session, table);
  refuse_what_a_transaction_has_not(session, table);
  refuse_keys_that_are_none(session, globals);

  // An open transaction, and a session that outlives its engine.
  DONE(ancile_begin(session, ANCILE_READ_COMMITTED, 0, &error));
  DONE(ancile_engine_close(engine, &error));
  REFUSED(ANCILE_STATUS_CLOSED, "closed", ancile_engine_close(engine, &error));
  REFUSED(ANCILE_STATUS_CLOSED, "closed", ancile_engine_flush(engine, &error));
  uint64_t rows;
  uint64_t row[2];
  bool found;
  REFUSED(ANCILE_STATUS_CLOSED, "closed",
          ancile_select(session, table, ANCILE_BY_KEY, 7, row, &found, &error));
  DONE(ancile_roll_back(session, &error));
  REFUSED(ANCILE_STATUS_CLOSED, "closed", ancile_count(session, table, &rows, &error));
  ancile_engine_free(engine);
  REFUSED(ANCILE_STATUS_CLOSED, "closed", ancile_count(session, table, &rows, &error));
  ancile_session_free(session);
  ancile_table_free(table);
  ancile_globals_free(globals);
  printf("%d checks\n", checks);
  return EXIT_SUCCESS;
}
