#!/usr/bin/env bash
# Installs the Apache Kafka that the library is tested with into
# ${XDG_CACHE_HOME:-~/.cache}/weir/kafka/<version>, where tests/kafkatest looks
# for it: a broker is nothing but jars, which Maven fetches. Says nothing when
# they are there.
set -euo pipefail

version=4.4.0
dir=${XDG_CACHE_HOME:-$HOME/.cache}/weir/kafka/$version
[[ -d $dir ]] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# kafka-tools-api is excluded: 4.4.0 names a version of it that Maven Central
# does not have, and the broker runs without it. log4j-slf4j-impl is what lets
# the broker write a log.
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weir</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
      <exclusions>
        <exclusion>
          <groupId>org.apache.kafka</groupId>
          <artifactId>kafka-tools-api</artifactId>
        </exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.5</version>
    </dependency>
  </dependencies>
</project>
POM

echo "kafka: installing $version"
for try in 1 2 3; do
	mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/lib" \
		>"$work/log" 2>&1 </dev/null && break
	((try < 3)) || { tail -n 40 "$work/log" >&2; echo "kafka: mvn failed" >&2; exit 1; }
	sleep 5
done
mkdir -p "$(dirname "$dir")"
rm -rf "$dir.new" && cp -r "$work/lib" "$dir.new" && mv "$dir.new" "$dir"
