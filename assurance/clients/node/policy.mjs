/** What a member's owner allows (STUDY-7, POLICY-1, POLICY-2). It only refuses. */
import { hex, require_ } from './encoding.mjs'
import { muOf } from './noise.mjs'

const MONTH_S = 30 * 86400

export class Policy {
  /** `approved`: approvals in hexadecimal; `mu_budget`: a record's μ for life. A limit that is not given refuses nothing. */
  constructor({ approved = [], mu_budget = 0, epsilon_max = null, members_min = 3, a_D_min = 0, lifetime_max_s = MONTH_S } = {}) {
    Object.assign(this, { approved: new Set(approved), mu_budget, epsilon_max, members_min, a_D_min, lifetime_max_s })
  }

  checkStudy(study) {
    require_(this.approved.has(hex(study.approval)), 'study-refused', 'admin')
    const epsilon = study.noisy ? study.q.noise.epsilon : Infinity
    require_(this.epsilon_max === null || epsilon <= this.epsilon_max, 'policy-refused')
    require_(!study.noisy || muOfStudy(study) <= this.mu_budget, 'policy-refused')
  }

  checkOpening({ terms }, { study, manifest }, now_s) {
    this.checkStudy(study)
    const { members, a_D } = manifest
    const within = members.length >= this.members_min && a_D >= this.a_D_min
    require_(within && Number(terms.latest_end) - now_s <= this.lifetime_max_s, 'policy-refused')
  }
}

const known = new Map()
/** The μ of a noisy study's whole chain. */
export function muOfStudy(study) {
  const { epsilon, delta } = study.q.noise
  const name = `${epsilon} ${delta}`
  if (!known.has(name)) known.set(name, muOf(epsilon, delta))
  return known.get(name)
}
