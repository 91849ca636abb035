// Every verb does what it says: by itself, in batches, within a transaction, after opening again.

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "ancile.hpp"

using ancile::Key;
using ancile::Place;
using ancile::Row;
using ancile::RowKey;

#define HOLDS(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::cerr << "line " << __LINE__ << ": not so: " << #condition << '\n'; \
      std::exit(EXIT_FAILURE);                                              \
    }                                                                       \
  } while (0)

template <class Body>
static ancile_status status_of(Body body) {
  try {
    body();
  } catch (const ancile::Error &error) {
    return error.status();
  }
  return ANCILE_STATUS_OK;
}

static void rows_by_place(ancile::Engine &engine) {
  auto table = engine.create_table<20>("places", false);
  auto session = engine.session();
  std::vector<Row<20>> rows(300);
  for (std::size_t at = 0; at < rows.size(); ++at) rows[at].fill(at);
  auto places = session.insert(table, rows);
  const auto found = session.select(table, places);
  for (std::size_t at = 0; at < rows.size(); ++at) HOLDS(found[at] == rows[at]);

  const auto place = session.insert(table, rows[5]);
  HOLDS(session.update(table, place, rows[6]));
  HOLDS(session.update_column(table, place, 19, ancile::to_cell(-2.5)));
  const auto row = session.select(table, place);
  HOLDS(row && (*row)[0] == 6 && ancile::from_cell<double>((*row)[19]) == -2.5);
  HOLDS(session.erase(table, place) && !session.erase(table, place));
  HOLDS(!session.select(table, place));

  std::multiset<std::uint64_t> seen;
  session.scan<Place>(table, [&](Place, const Row<20> &shown) { seen.insert(shown[3]); });
  HOLDS(seen.size() == 300 && *seen.begin() == 0 && *seen.rbegin() == 299);
  HOLDS(session.update(table, places, rows) == 300);
  HOLDS(session.erase(table, places) == 300 && session.count(table) == 0);
  HOLDS(session.insert(table, std::vector<Row<20>>()).empty());
}

static void rows_by_key(ancile::Engine &engine) {
  auto table = engine.create_table<2>("keys", true, 1000);
  auto session = engine.session();
  std::vector<RowKey> keys;
  std::vector<Row<2>> rows;
  for (std::uint64_t key = 0; key < 1000; ++key) {
    keys.push_back({key * 7});
    rows.push_back({key, key * key});
  }
  HOLDS(session.insert(table, keys, rows) == 1000);
  HOLDS(session.insert(table, keys, rows) == 0);
  HOLDS(session.upsert(table, {RowKey{7}, RowKey{1}}, std::vector<Row<2>>{{1, 1}, {2, 2}}) == 1);
  HOLDS(session.upsert(table, RowKey{1}, {3, 3}) && !session.upsert(table, RowKey{2}, {4, 4}));
  const auto found = session.select(table, std::vector<RowKey>{{1}, {3}, {14}});
  HOLDS(found[0] == (Row<2>{3, 3}) && !found[1] && found[2] == (Row<2>{2, 4}));
  HOLDS(session.count(table) == 1002);
  HOLDS(session.erase(table, std::vector<RowKey>{{1}, {2}, {3}}) == 2);

  std::map<std::uint64_t, std::uint64_t> seen;
  session.scan<RowKey>(table, [&](RowKey key, const Row<2> &row) { seen[key.number] = row[1]; });
  HOLDS(seen.size() == 1000 && seen[21] == 9);
  int visits = 0;
  session.scan<RowKey>(table, [&](RowKey, const Row<2> &) { return ++visits < 10; });
  HOLDS(visits == 10);
  try {
    session.scan<RowKey>(table, [&](RowKey, const Row<2> &) { throw visits; });
    HOLDS(false);
  } catch (int thrown) {
    HOLDS(thrown == 10);
  }
  HOLDS(status_of([&] { session.insert(table, RowKey{7}, {0, 0}); }) == ANCILE_STATUS_DUPLICATE);
  HOLDS(status_of([&] { engine.open_table<3>("keys"); }) == ANCILE_STATUS_SCHEMA);
}

static void transactions(ancile::Engine &engine) {
  auto table = engine.create_table<1>("balances", true);
  auto places = engine.create_table<1>("notes", false);
  auto globals = engine.globals();
  auto session = engine.session();
  session.insert(table, std::vector<RowKey>{{1}, {2}}, std::vector<Row<1>>{{100}, {100}});

  session.begin(ANCILE_SERIALIZABLE, 10'000'000);
  session.update(table, RowKey{1}, {50});
  const auto savepoint = session.savepoint();
  HOLDS(session.erase(table, RowKey{2}) && !session.select(table, RowKey{2}));
  session.roll_back_to(savepoint);
  HOLDS(session.select(table, RowKey{2}) == Row<1>{100});
  session.insert(table, RowKey{3}, {1});
  HOLDS(session.upsert(table, RowKey{3}, {2}));
  const auto place = session.insert(places, Row<1>{9});
  session.set(globals, Key("note", 1), "one");
  HOLDS(session.increment(globals, Key("note", "count"), 5) == "5");
  HOLDS(session.get(globals, Key("note", 1)) == "one");
  HOLDS(!engine.session().select(table, RowKey{3}));
  session.commit();
  const auto rows = session.select(table, std::vector<RowKey>{{1}, {2}, {3}});
  HOLDS(rows[0] == Row<1>{50} && rows[1] == Row<1>{100} && rows[2] == Row<1>{2});
  HOLDS(session.select(places, place) == Row<1>{9});
  HOLDS(session.get(globals, Key("note", "count")) == "5");

  // Batches are parts of it, too.
  session.transaction([&] {
    HOLDS(session.insert(table, std::vector<RowKey>{{4}}, std::vector<Row<1>>{{4}}) == 1);
    HOLDS(session.update(table, std::vector<RowKey>{{4}, {5}}, std::vector<Row<1>>{{5}, {5}}) == 1);
    HOLDS(session.upsert(table, std::vector<RowKey>{{4}, {5}}, std::vector<Row<1>>{{6}, {6}}) == 1);
    const auto own = session.select(table, std::vector<RowKey>{{4}, {5}, {6}});
    HOLDS(own[0] == Row<1>{6} && own[1] == Row<1>{6} && !own[2]);
    HOLDS(session.erase(table, std::vector<RowKey>{{4}, {5}}) == 2);
    HOLDS(session.insert(places, std::vector<Row<1>>(3)).size() == 3);
    session.kill(globals, Key("note"));
  });
  HOLDS(session.count(table) == 3 && session.count(places) == 4);
  HOLDS(!session.get(globals, Key("note", 1)));

  // Conflicts are tried again: nothing is lost.
  std::vector<std::thread> threads;
  std::atomic<int> runs{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      auto mine = engine.session();
      for (int turn = 0; turn < 50; ++turn) {
        mine.transaction(
            [&] {
              ++runs;
              const auto row = mine.select(table, RowKey{1}).value();
              mine.update(table, RowKey{1}, {row[0] + 1});
            },
            ANCILE_SERIALIZABLE, 1'000'000);
      }
    });
  }
  for (auto &thread : threads) thread.join();
  HOLDS(session.select(table, RowKey{1}) == Row<1>{250});
  HOLDS(runs >= 200);
}

static void globals(ancile::Engine &engine) {
  auto set = engine.create_globals("spread", -1);
  auto session = engine.session();
  for (int number = 0; number < 100; ++number) {
    session.set(set, Key("n", number - 50, "text"), std::to_string(number));
  }
  HOLDS(session.count(set, Key("n")) == 100);
  auto key = Key("n");
  HOLDS(session.first(set, key) && key.subscript(1) == "-50" && key.subscripts() == 1);
  HOLDS(session.next(set, key) && key.subscript(1) == "-49");
  HOLDS(session.previous(set, key) && !session.previous(set, key));
  HOLDS(session.query(set, key) == "0" && key.subscript(2) == "text");
  HOLDS(key.pop() && key.pop() && !key.pop());
  HOLDS(session.last(set, key) && key.subscript(1) == "49");

  std::vector<std::string> values;
  session.scan(set, Key("n"), [&](const ancile_key *, std::string_view value) {
    values.emplace_back(value);
    return values.size() < 3;
  });
  HOLDS((values == std::vector<std::string>{"0", "1", "2"}));
  std::string last;
  session.scan(
      set, Key("n"),
      [&](const ancile_key *shown, std::string_view) {
        last = Key::of(shown).subscript(1);
        return false;
      },
      true);
  HOLDS(last == "49");

  bool has_value = true, has_descendants = false;
  HOLDS(ancile_globals_data(session.get(), set.get(), Key("n", 1).get(), &has_value,
                            &has_descendants, nullptr) == ANCILE_STATUS_OK);
  HOLDS(!has_value && has_descendants);
  session.kill(set, Key("n", 1));
  HOLDS(session.count(set, Key("n")) == 99 && !session.get(set, Key("n", 1, "text")));
  const std::string bytes("a\0b", 3);
  session.set(set, Key("bytes", bytes), bytes);
  HOLDS(session.get(set, Key("bytes", bytes)) == bytes);
  session.set(set, Key("empty"), "");
  HOLDS(session.get(set, Key("empty")) == "");
}

static void durable(const std::filesystem::path &folder) {
  const auto settings = [] {
    ancile::Builder builder;
    builder.shards(2).arena_bytes(64 << 20).journal_segment_bytes(1 << 20);
    return builder;
  };
  const auto path = folder / "journaled";
  {
    auto engine = settings().durability(ANCILE_DURABILITY_COMMIT).open(path);
    auto table = engine.create_table<1>("table", true);
    auto session = engine.session();
    session.insert(table, RowKey{1}, {10});
    session.wait_for_disk(false);
    session.insert(table, RowKey{2}, {20});
    session.flush();
    engine.flush();
    engine.backup(folder / "backup");
    HOLDS(status_of([&] { settings().open(path); }) == ANCILE_STATUS_IN_USE);
  }
  HOLDS(std::filesystem::exists(folder / "backup"));
  auto engine = settings().read_only(true).open(path);
  auto table = engine.open_table<1>("table");
  auto session = engine.session();
  HOLDS(session.select(table, RowKey{2}) == Row<1>{20});
  HOLDS(status_of([&] { session.erase(table, RowKey{2}); }) == ANCILE_STATUS_READ_ONLY);
  const auto nowhere = folder / "nowhere";
  HOLDS(status_of([&] { settings().must_exist(true).open(nowhere); }) != ANCILE_STATUS_OK);
}

int main() {
  const auto name = "ancile-verbs-" + std::to_string(getpid());
  const auto folder = std::filesystem::temp_directory_path() / name;
  std::filesystem::create_directories(folder);
  {
    auto engine = ancile::Builder().shards(2).arena_bytes(64 << 20).build();
    HOLDS(engine.shards() == 2 && !ancile::version().empty());
    rows_by_place(engine);
    rows_by_key(engine);
    transactions(engine);
    globals(engine);
    engine.drop_table("keys");
    HOLDS(status_of([&] { engine.open_table<2>("keys"); }) == ANCILE_STATUS_TABLE_MISSING);
    engine.close();
    HOLDS(status_of([&] { engine.session(); }) == ANCILE_STATUS_CLOSED);
  }
  durable(folder);
  std::filesystem::remove_all(folder);
  std::cout << "all verbs do what they say\n";
}
