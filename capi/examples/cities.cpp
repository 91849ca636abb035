// Globals and rows from C++: an ordered store in files, threads with sessions of their own, a transaction.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>
#include <vector>

#include "ancile.hpp"

using ancile::Key;
using ancile::RowKey;

static void require(bool is_so, const char *what) {
  if (is_so) return;
  std::cerr << "not so: " << what << '\n';
  std::exit(EXIT_FAILURE);
}

static void fill(ancile::Engine &engine) {
  auto globals = engine.globals();
  auto session = engine.session();
  session.set(globals, Key("city", "AT", 5020), "Salzburg");
  session.set(globals, Key("city", "AT", 1010), "Wien");
  session.set(globals, Key("city", "CH", 8000), "Zürich");

  // Each thread takes a session of its own; an increment is one step.
  std::vector<std::thread> visitors;
  for (int visitor = 0; visitor < 4; ++visitor) {
    visitors.emplace_back([&] {
      auto mine = engine.session();
      for (int visit = 0; visit < 100; ++visit) mine.increment(globals, Key("visits", "AT", 1010));
    });
  }
  for (auto &visitor : visitors) visitor.join();

  // Rows and globals in one transaction; what is thrown takes all of it back.
  auto people = engine.create_table<2>("people", true);
  session.insert(people, RowKey{1010}, {1'897'000, 0});
  try {
    session.transaction([&] {
      session.kill(globals, Key("city"));
      session.erase(people, RowKey{1010});
      throw std::runtime_error("nobody wants that");
    });
  } catch (const std::runtime_error &refused) {
    std::cout << refused.what() << '\n';
  }
  session.transaction([&] {
    auto row = session.select(people, RowKey{1010}).value();
    row[1] = std::stoull(session.get(globals, Key("visits", "AT", 1010)).value_or("0"));
    session.update(people, RowKey{1010}, row);
  });
}

int main() {
  const auto name = "ancile-cities-" + std::to_string(getpid());
  const auto path = std::filesystem::temp_directory_path() / name;
  ancile::Builder settings;
  settings.shards(2).arena_bytes(64 << 20);
  {
    auto engine = settings.open(path);
    fill(engine);
    engine.close();
  }
  auto engine = settings.open(path);
  auto globals = engine.open_globals("globals");
  auto session = engine.session();

  std::string cities;
  session.scan(globals, Key("city"), [&](const ancile_key *shown, std::string_view name) {
    const auto key = Key::of(shown);
    cities += key.subscript(1) + "-" + key.subscript(2) + " " + std::string(name) + "\n";
  });
  std::cout << cities;
  require(cities == "AT-1010 Wien\nAT-5020 Salzburg\nCH-8000 Zürich\n", "all cities, in order");

  auto key = Key("city", "");  // Before the first country.
  std::vector<std::string> countries;
  while (session.next(globals, key)) countries.push_back(key.subscript(1));
  require(countries == std::vector<std::string>{"AT", "CH"}, "two countries");

  const auto row = session.select(engine.open_table<2>("people"), RowKey{1010});
  require(row && (*row)[1] == 400, "four hundred visits");
  engine.close();
  std::filesystem::remove_all(path);
}
