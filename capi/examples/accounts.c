// Accounts from C: a table, its rows, and a transfer that is all or nothing.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ancile.h"

// Ends the program when something goes wrong; frees what tells of it.
static void must(ancile_status status, ancile_error *error) {
  if (status == ANCILE_STATUS_OK) return;
  fprintf(stderr, "error %d: %s\n", (int)status, ancile_error_message(error));
  ancile_error_free(error);
  exit(EXIT_FAILURE);
}

// Moves cents between two accounts, in whichever shards they are.
static ancile_status transfer(ancile_session *session, const ancile_table *accounts, uint64_t from,
                              uint64_t to, uint64_t cents, ancile_error **error) {
  ancile_status status;
  do {
    uint64_t paid[1], got[1];
    bool is_paid, is_got;
    if ((status = ancile_begin(session, ANCILE_READ_COMMITTED, 0, error))) return status;
    if ((status = ancile_select(session, accounts, ANCILE_BY_KEY, from, paid, &is_paid, error)) ||
        (status = ancile_select(session, accounts, ANCILE_BY_KEY, to, got, &is_got, error))) {
      ancile_roll_back(session, NULL);
      return status;
    }
    if (!is_paid || !is_got || paid[0] < cents) return ancile_roll_back(session, error);
    paid[0] -= cents;
    got[0] += cents;
    if ((status = ancile_update(session, accounts, ANCILE_BY_KEY, from, paid, NULL, error)) ||
        (status = ancile_update(session, accounts, ANCILE_BY_KEY, to, got, NULL, error))) {
      ancile_roll_back(session, NULL);
      return status;
    }
    status = ancile_commit(session, NULL);
  } while (status == ANCILE_STATUS_CONFLICT);  // Others came between: once more.
  return status;
}

int main(void) {
  ancile_error *error = NULL;
  ancile_builder *builder = ancile_builder_new();
  ancile_builder_shards(builder, 2);
  ancile_builder_arena_bytes(builder, 64 << 20);
  ancile_engine *engine = NULL;
  must(ancile_builder_open(builder, NULL, &engine, &error), error);
  ancile_builder_free(builder);

  ancile_table *accounts = NULL;
  must(ancile_engine_create_table(engine, "accounts", 1, true, 1000, &accounts, &error), error);
  ancile_session *session = NULL;
  must(ancile_engine_session(engine, &session, &error), error);

  const uint64_t keys[] = {1, 2, 3};
  const uint64_t rows[] = {100, 100, 100};
  must(ancile_insert_keyed_batch(session, accounts, keys, rows, 3, NULL, &error), error);
  must(transfer(session, accounts, 1, 2, 30, &error), error);
  must(transfer(session, accounts, 1, 3, 1000, &error), error);  // Not enough: nothing happens.

  uint64_t balances[3];
  bool found[3];
  must(ancile_select_batch(session, accounts, ANCILE_BY_KEY, keys, 3, balances, found, &error),
       error);
  for (int at = 0; at < 3; ++at) printf("account %" PRIu64 ": %" PRIu64 "\n", keys[at], balances[at]);
  if (balances[0] != 70 || balances[1] != 130 || balances[2] != 100) return EXIT_FAILURE;

  ancile_session_free(session);
  ancile_table_free(accounts);
  must(ancile_engine_close(engine, &error), error);
  ancile_engine_free(engine);
  return EXIT_SUCCESS;
}
